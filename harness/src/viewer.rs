//! Where a trace can be looked at: an address with the trace's id in it.

use crate::sanitize::sanitize;
use thiserror::Error;

/// What stands for the trace's id in a template.
const PLACE: &str = "{trace_id}";
/// Longest template.
const MAX_TEMPLATE: usize = 2_048;

/// The address of a trace in its viewer, with a place for its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Viewer {
    template: String,
}

/// Why a text is no such address.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}`: write the address of a trace with {{trace_id}} in it, as in http://127.0.0.1:16686/trace/{{trace_id}}")]
pub struct ViewerError(String);

/// A trace's id as viewers write it.
pub fn trace_id(trace: u128) -> String {
    format!("{trace:032x}")
}

impl Viewer {
    /// Reads a template.
    pub fn read(template: &str) -> Result<Self, ViewerError> {
        let template = template.trim();
        let is_address = (template.starts_with("http://") || template.starts_with("https://"))
            && template.matches(PLACE).count() == 1
            && template.len() <= MAX_TEMPLATE
            && template.bytes().all(|byte| byte.is_ascii_graphic());
        if is_address {
            let template = template.to_owned();
            Ok(Self { template })
        } else {
            Err(ViewerError(sanitize(template)))
        }
    }

    /// The address of one trace.
    pub fn address(&self, trace: u128) -> String {
        self.template.replace(PLACE, &trace_id(trace))
    }

    /// The address that shows how two traces differ, where the viewer is Jaeger: its addresses end in `/trace/ID`, and
    /// `/trace/ID...ID` compares. Others have no such address that is known here.
    pub fn difference(&self, one: &str, other: &str) -> Option<String> {
        let before = self.template.strip_suffix(PLACE)?;
        before.ends_with("/trace/").then(|| format!("{before}{one}...{other}"))
    }

    /// As it was written.
    pub fn template(&self) -> &str {
        &self.template
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_takes_its_place() {
        let viewer = Viewer::read("http://127.0.0.1:16686/trace/{trace_id}").unwrap();
        assert_eq!(
            viewer.address(0xa),
            "http://127.0.0.1:16686/trace/0000000000000000000000000000000a"
        );
        assert_eq!(
            viewer.difference("aa", "bb").unwrap(),
            "http://127.0.0.1:16686/trace/aa...bb"
        );
        let other = Viewer::read("https://viewer/projects/1/traces/{trace_id}").unwrap();
        assert_eq!(other.difference("aa", "bb"), None);
    }

    #[test]
    fn what_is_no_address_of_a_trace_is_refused() {
        for text in [
            "",
            "http://x/trace",
            "x/{trace_id}",
            "http://x/{trace_id}/{trace_id}",
            "http://x/ {trace_id}",
            "file:///{trace_id}",
            "http://x/\u{1b}{trace_id}",
        ] {
            assert!(Viewer::read(text).is_err(), "{text}");
        }
    }
}
