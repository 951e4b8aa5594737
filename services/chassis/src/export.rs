//! Where a service sends all its spans by itself. Who follows requests gets copies besides.

use crate::config::ConfigError;
use std::fmt;

/// Where all spans of a process go.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Export {
    /// Nowhere.
    #[default]
    None,
    /// To this collector (`http://host:port`), under names that no OTEL_* variable changes: what the harness tells its children.
    To(String),
    /// As the OTEL_* variables of OpenTelemetry say.
    Environment,
}

/// What [`Export::Environment`] is written as.
const ENVIRONMENT: &str = "environment";

const DISABLED: &str = "OTEL_SDK_DISABLED";
const EXPORTER: &str = "OTEL_TRACES_EXPORTER";
/// The variable for traces alone beats the one for all signals.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
const PROTOCOLS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];

impl Export {
    /// Reads what `Display` writes; an empty text is nowhere.
    pub fn read(text: &str) -> Self {
        match text {
            "" => Self::None,
            ENVIRONMENT => Self::Environment,
            url => Self::To(url.to_owned()),
        }
    }
}

impl fmt::Display for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::To(url) => f.write_str(url),
            Self::Environment => f.write_str(ENVIRONMENT),
        }
    }
}

/// What the OTEL_* variables ask for. Unlike the SDK we send nothing where nobody named a collector: a service that was started
/// by hand should not knock at a port of somebody else's.
///
/// # Errors
/// What the SDK would pass over in silence, or turn into TLS, which is not spoken here.
pub fn asked_for(environment: impl Fn(&str) -> Option<String>) -> Result<Export, ConfigError> {
    let value = |name: &'static str| {
        let value = environment(name).map(|value| value.trim().to_owned());
        value.filter(|value| !value.is_empty()).map(|value| (name, value))
    };
    let wrong = |name: &'static str, value: String, right: &str| {
        let right = right.to_owned();
        Err(ConfigError::Value { name, value, right })
    };
    if value(DISABLED).is_some_and(|(_, value)| value.eq_ignore_ascii_case("true")) {
        return Ok(Export::None);
    }
    let exporter = value(EXPORTER);
    match &exporter {
        Some((_, value)) if value.eq_ignore_ascii_case("none") => return Ok(Export::None),
        Some((name, value)) if !value.eq_ignore_ascii_case("otlp") => {
            return wrong(name, value.clone(), "write otlp, or none");
        }
        _ => {}
    }
    let endpoint = ENDPOINTS.into_iter().find_map(value);
    if endpoint.is_none() && exporter.is_none() {
        return Ok(Export::None);
    }
    if let Some((name, value)) = endpoint
        && !value.starts_with("http://")
    {
        let right = "write http://host:port, as in http://127.0.0.1:4317; TLS is not built yet";
        return wrong(name, value, right);
    }
    match PROTOCOLS.into_iter().find_map(value) {
        Some((name, value)) if value != "grpc" => wrong(name, value, "write grpc; nothing else is spoken here"),
        _ => Ok(Export::Environment),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn asked(pairs: &[(&str, &str)]) -> Result<Export, ConfigError> {
        let pairs: BTreeMap<_, _> = pairs.iter().copied().collect();
        asked_for(|name| pairs.get(name).map(|value| (*value).to_owned()))
    }

    #[test]
    fn spans_are_exported_only_where_somebody_asks_for_them() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317");
        for pairs in [
            &[endpoint][..],
            &[("OTEL_TRACES_EXPORTER", "otlp")],
            &[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://127.0.0.1:4317")],
            &[endpoint, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")],
        ] {
            assert_eq!(asked(pairs), Ok(Export::Environment), "{pairs:?}");
        }
        for pairs in [
            &[][..],
            &[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")],
            &[endpoint, ("OTEL_SDK_DISABLED", "TRUE")],
            &[endpoint, ("OTEL_TRACES_EXPORTER", "none")],
        ] {
            assert_eq!(asked(pairs), Ok(Export::None), "{pairs:?}");
        }
    }

    #[test]
    fn what_would_be_passed_over_in_silence_is_refused_by_name() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317");
        for (pairs, named) in [
            (
                &[("OTEL_EXPORTER_OTLP_ENDPOINT", "https://c:4317")][..],
                "OTEL_EXPORTER_OTLP_ENDPOINT",
            ),
            (
                &[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "c:4317")],
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
            ),
            (
                &[endpoint, ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")],
                "OTEL_EXPORTER_OTLP_PROTOCOL",
            ),
            (&[("OTEL_TRACES_EXPORTER", "zipkin")], "OTEL_TRACES_EXPORTER"),
        ] {
            let error = asked(pairs).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }
}
