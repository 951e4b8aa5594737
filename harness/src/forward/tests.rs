//! Addresses read and refused. What forwarding does to a run is tested with the collector, over real sockets.

use super::*;

#[test]
fn addresses_are_read_as_they_are_meant() {
    for (read, url) in [
        ("http://127.0.0.1:4317", "http://127.0.0.1:4317"),
        ("http://collector:14317/", "http://collector:14317"),
        ("http://collector", "http://collector:4317"),
        ("http://[::1]:4317", "http://[::1]:4317"),
        ("localhost:4317", "http://localhost:4317"),
        ("127.0.0.1", "http://127.0.0.1:4317"),
        ("[::1]:1", "http://[::1]:1"),
    ] {
        assert_eq!(Forward::to(read).unwrap().url(), url, "{read}");
    }
}

#[test]
fn addresses_that_mean_something_else_are_refused_by_name() {
    let refused = |read: &str| Forward::to(read).unwrap_err();
    let owned = str::to_owned;
    for read in [
        "",
        "http://",
        "ftp://a:1",
        "http://a:99999",
        "http://a:",
        "http://u@a:1",
        "a b",
        "http://:1",
    ] {
        assert_eq!(refused(read), ForwardError::NotAnAddress { read: owned(read) });
    }
    assert_eq!(
        refused("https://a:4317"),
        ForwardError::Tls {
            read: owned("https://a:4317")
        }
    );
    assert_eq!(
        refused("collector:4317"),
        ForwardError::NoScheme {
            read: owned("collector:4317")
        }
    );
    for read in ["http://a:4318/v1/traces", "http://a:4318?x=1"] {
        assert_eq!(refused(read), ForwardError::Path { read: owned(read) });
    }
    assert!(
        refused("collector:4317")
            .to_string()
            .ends_with("write http://collector:4317")
    );
}
