//! What people and programs get to read: a report becomes text, a page, a figure or JSON here.
//!
//! [`text`], [`markdown`], [`svg`] and [`json`] are pure; [`print`] and [`print_error`] are the only way to the terminal.
//! Nothing in here counts or judges: a figure that a report does not hold is not shown, but for how two of its figures differ,
//! how many whole times one goes into another, and their sum where one line stands for many. Whatever else is computed here
//! is a place on the screen or the page.

pub mod json;
pub mod markdown;
pub mod progress;
pub mod svg;
pub mod text;

use anstream::{AutoStream, ColorChoice};
use std::io::{self, ErrorKind, Write};

/// Writes a result to stdout. A reader who has left early (`| head`) is no error.
pub fn print(text: &str, color: ColorChoice) -> io::Result<()> {
    put(AutoStream::new(io::stdout().lock(), color), text)
}

/// Writes to stderr: errors, warnings, everything that is no result. A reader who has left is no error.
pub fn print_error(text: &str, color: ColorChoice) -> io::Result<()> {
    put(AutoStream::new(io::stderr().lock(), color), text)
}

fn put(mut to: impl Write, text: &str) -> io::Result<()> {
    match to.write_all(text.as_bytes()).and_then(|()| to.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

#[cfg(test)]
pub(crate) mod samples;
#[cfg(test)]
mod schema_tests;

#[cfg(test)]
mod tests {
    use super::*;

    struct Failing(ErrorKind);

    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Err(self.0.into())
        }
    }

    #[test]
    fn a_reader_who_left_is_a_quiet_end_and_a_full_disk_is_not() {
        assert!(put(Failing(ErrorKind::BrokenPipe), "27").is_ok());
        assert_eq!(
            put(Failing(ErrorKind::StorageFull), "27").unwrap_err().kind(),
            ErrorKind::StorageFull
        );
    }

    #[test]
    fn colour_never_strips_every_escape() {
        let mut plain = AutoStream::new(Vec::new(), ColorChoice::Never);
        plain.write_all(b"\x1b[31mNOT\x1b[0m AS PREDICTED").unwrap();
        assert_eq!(plain.into_inner(), b"NOT AS PREDICTED");
    }
}
