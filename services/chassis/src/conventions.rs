//! The names that a trace speaks in: attributes, span names and status rules, in one place.
//!
//! Released OpenTelemetry semantic conventions, RPC part (v1.39 to v1.44): after v1.44 `rpc.response.status_code` is to become
//! `rpc.status_code`, and then it changes here. `previous-rpc-attempts` and the names of attempt spans are gRPC's own
//! (gRFC A72). What nobody has named stands under `retryscope.`.

use crate::code::Code;

/// `grpc`.
pub const RPC_SYSTEM: &str = "rpc.system.name";
/// Package, service and method, without the leading slash.
pub const RPC_METHOD: &str = "rpc.method";
/// The name of the status code, as a string: `UNAVAILABLE`.
pub const RPC_STATUS: &str = "rpc.response.status_code";
/// The same, on failures only.
pub const ERROR_TYPE: &str = "error.type";
/// The callee's host as the caller is configured, never the socket's.
pub const SERVER_ADDRESS: &str = "server.address";
/// The callee's port.
pub const SERVER_PORT: &str = "server.port";
/// Attempts of the same call before this one; 0 on the first.
pub const PREVIOUS_ATTEMPTS: &str = "previous-rpc-attempts";
/// The request's number, on every span. An i64: the bridge turns an unsigned number into a string.
pub const REQUEST: &str = "retryscope.request";
/// The attempt at each layer above an arrival: `17:1.3.2`, with the call before it where it is not the first: `17:1.3.2-1`.
pub const ATTEMPT_PATH: &str = "retryscope.attempt_path";
/// The settings in force when a request came.
pub const GENERATION: &str = "retryscope.generation";

/// The version of the conventions that the names below follow.
pub const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.42.0";

/// Resource: what the services are together.
pub const SERVICE_NAMESPACE: &str = "service.namespace";
/// Resource: which process.
pub const SERVICE_INSTANCE: &str = "service.instance.id";
/// Resource: which version of it.
pub const SERVICE_VERSION: &str = "service.version";
/// Resource: the nonce of the run that a span belongs to.
pub const RUN: &str = "retryscope.run";

/// What an attempt's span is called (gRFC A72): the slash becomes a dot.
pub fn attempt_name(method: &str) -> String {
    format!("Attempt.{}", method.replace('/', "."))
}

/// For a client every code but OK is an error.
pub fn is_client_error(code: Code) -> bool {
    code != Code::Ok
}

/// For a server only those that are the server's own fault are.
pub fn is_server_error(code: Code) -> bool {
    matches!(
        code,
        Code::Unknown
            | Code::DeadlineExceeded
            | Code::Unimplemented
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_request_is_the_clients_error_and_not_the_servers() {
        assert!(is_client_error(Code::InvalidArgument) && !is_server_error(Code::InvalidArgument));
        assert!(is_client_error(Code::Unavailable) && is_server_error(Code::Unavailable));
        assert!(!is_client_error(Code::Ok) && !is_server_error(Code::Ok));
    }

    #[test]
    fn an_attempt_is_named_as_grpc_names_it() {
        assert_eq!(
            attempt_name("shop.v1.Inventory/GetStock"),
            "Attempt.shop.v1.Inventory.GetStock"
        );
    }
}
