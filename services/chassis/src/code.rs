//! Status codes by their names, as gRPC writes them (`UNAVAILABLE`). Pure.

use thiserror::Error;
pub use tonic::Code;

/// Every status code with its name, in the order of its number.
pub const NAMES: [(Code, &str); 17] = [
    (Code::Ok, "OK"),
    (Code::Cancelled, "CANCELLED"),
    (Code::Unknown, "UNKNOWN"),
    (Code::InvalidArgument, "INVALID_ARGUMENT"),
    (Code::DeadlineExceeded, "DEADLINE_EXCEEDED"),
    (Code::NotFound, "NOT_FOUND"),
    (Code::AlreadyExists, "ALREADY_EXISTS"),
    (Code::PermissionDenied, "PERMISSION_DENIED"),
    (Code::ResourceExhausted, "RESOURCE_EXHAUSTED"),
    (Code::FailedPrecondition, "FAILED_PRECONDITION"),
    (Code::Aborted, "ABORTED"),
    (Code::OutOfRange, "OUT_OF_RANGE"),
    (Code::Unimplemented, "UNIMPLEMENTED"),
    (Code::Internal, "INTERNAL"),
    (Code::Unavailable, "UNAVAILABLE"),
    (Code::DataLoss, "DATA_LOSS"),
    (Code::Unauthenticated, "UNAUTHENTICATED"),
];

/// A name that is no failure a service could answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CodeError {
    /// Not one of [`NAMES`].
    #[error("`{0}` is not a status code (one of {names})", names = failure_names().collect::<Vec<_>>().join(", "))]
    Unknown(String),
    /// OK where a failure is wanted.
    #[error("`OK` is not a failure")]
    NotAFailure,
}

/// The name of a code, upper case.
pub fn name(code: Code) -> &'static str {
    let found = NAMES.iter().find(|(known, _)| *known == code);
    found.map_or("UNKNOWN", |(_, name)| name)
}

/// The names of all codes but OK.
pub fn failure_names() -> impl Iterator<Item = &'static str> {
    NAMES.iter().skip(1).map(|(_, name)| *name)
}

/// Reads the name of a failure, in upper or lower case.
///
/// # Errors
/// When the name is none of [`NAMES`], or is `OK`.
pub fn parse_failure(text: &str) -> Result<Code, CodeError> {
    let upper = text.trim().to_ascii_uppercase();
    match NAMES.iter().find(|(_, name)| *name == upper) {
        None => Err(CodeError::Unknown(text.trim().to_owned())),
        Some((Code::Ok, _)) => Err(CodeError::NotAFailure),
        Some((code, _)) => Ok(*code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_stands_at_its_own_number() {
        for (number, (code, text)) in (0_i32..).zip(NAMES) {
            assert_eq!(Code::from_i32(number), code);
            assert_eq!(name(code), text);
        }
    }

    #[test]
    fn a_failure_is_read_in_any_case_and_ok_is_none() {
        assert_eq!(parse_failure("unavailable"), Ok(Code::Unavailable));
        assert_eq!(parse_failure("OK"), Err(CodeError::NotAFailure));
        assert!(
            parse_failure("UNAVAILBLE")
                .unwrap_err()
                .to_string()
                .contains("UNAVAILBLE")
        );
    }
}
