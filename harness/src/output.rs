//! Where results are written: stdout or a path the user gave.
//!
//! A regular file or a new name is written beside its place and renamed over it, so that no reader ever sees half of it
//! and a failure leaves what was there. Devices, pipes and FIFOs are written through: a rename onto `/dev/null` would
//! replace the device. A link's target is written, not the link.

use std::{
    fs::{self, File, Metadata, OpenOptions},
    io::{self, ErrorKind, Write},
    path::{Component, Path, PathBuf},
};
use tempfile::NamedTempFile;

/// Most links from one name to the next, as in Linux.
const LINKS: usize = 40;

/// Where an output goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Standard output.
    Stdout,
    /// A path: a file, a new name, a device, a FIFO.
    File(PathBuf),
}

impl Target {
    /// As typed: `-` is standard output.
    pub fn parse(typed: impl Into<PathBuf>) -> Self {
        let path = typed.into();
        if path.as_os_str() == "-" {
            Self::Stdout
        } else {
            Self::File(path)
        }
    }
}

/// An output that could not be written.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// A path cannot be written.
    #[error("cannot write {path:?}: {reason}")]
    Path {
        /// As given; written with escapes, since a path may hold any byte.
        path: PathBuf,
        /// What stands in the way.
        reason: String,
    },
    /// Standard output cannot be written.
    #[error("cannot write to standard output: {0}")]
    Stdout(#[source] io::Error),
}

/// What stands at the end of a path.
enum Place {
    /// A regular file or a new name: written beside, then renamed to this path.
    Beside(PathBuf),
    /// Opened and written as it is.
    Through(PathBuf),
}

/// Whether a target can be written, asked before anything starts. Leaves nothing behind.
pub fn check_writable(target: &Target) -> Result<(), OutputError> {
    let Target::File(path) = target else { return Ok(()) };
    let tried = place(path).and_then(|place| match place {
        Place::Beside(file) => beside(&file).map(drop),
        Place::Through(device) => probe(&device),
    });
    tried.map_err(|error| refused(path, &error))
}

/// Writes everything, or says why not. Who stops reading stdout early is no failure.
pub fn write(target: &Target, bytes: &[u8]) -> Result<(), OutputError> {
    match target {
        Target::Stdout => {
            let mut stdout = io::stdout().lock();
            match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
                Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(OutputError::Stdout(error)),
                _ => Ok(()),
            }
        }
        Target::File(path) => {
            let tried = place(path).and_then(|place| match place {
                Place::Beside(file) => replace(&file, bytes),
                Place::Through(device) => write_through(&device, bytes),
            });
            tried.map_err(|error| refused(path, &error))
        }
    }
}

/// Writes behind what a file holds; makes the file where there is none.
pub fn append(path: &Path, bytes: &[u8]) -> Result<(), OutputError> {
    let opened = OpenOptions::new().append(true).create(true).open(path);
    let tried = opened.and_then(|mut file| file.write_all(bytes).and_then(|()| file.flush()));
    tried.map_err(|error| refused(path, &error))
}

fn refused(path: &Path, error: &io::Error) -> OutputError {
    OutputError::Path {
        path: path.to_owned(),
        reason: error.to_string(),
    }
}

fn wrong(reason: String) -> io::Error {
    io::Error::other(reason)
}

/// Follows links to the place that is written.
fn place(path: &Path) -> io::Result<Place> {
    if path.as_os_str().is_empty() {
        return Err(wrong("the name is empty".to_owned()));
    }
    if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return Err(wrong("it names a folder, not a file".to_owned()));
    }
    let mut path = path.to_owned();
    for _ in 0..LINKS {
        // What the kernel keeps there stands for something open: renaming a new file over its target would part the
        // two, and the target's name may be no path at all (`pipe:[27]`).
        if is_kernels(&path) {
            return match fs::metadata(&path) {
                Ok(found) if found.is_dir() => Err(wrong("it is a folder".to_owned())),
                Ok(_) => Ok(Place::Through(path)),
                Err(error) => Err(error),
            };
        }
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_symlink() => {
                let next = fs::read_link(&path)?;
                path = parent(&path).join(next);
            }
            Ok(found) => return of_kind(path, &found),
            Err(error) if error.kind() == ErrorKind::NotFound => return new_name(path),
            Err(error) => return Err(error),
        }
    }
    Err(wrong("too many links lead from one to the next".to_owned()))
}

fn of_kind(path: PathBuf, found: &Metadata) -> io::Result<Place> {
    if found.is_dir() {
        Err(wrong("it is a folder".to_owned()))
    } else if found.is_file() {
        Ok(Place::Beside(path))
    } else if is_socket(found) {
        Err(wrong("it is a socket".to_owned()))
    } else {
        Ok(Place::Through(path))
    }
}

fn new_name(path: PathBuf) -> io::Result<Place> {
    let parent = parent(&path);
    match fs::metadata(&parent) {
        Ok(found) if found.is_dir() && path.file_name().is_some() => Ok(Place::Beside(path)),
        Ok(found) if found.is_dir() => Err(wrong("it names no file".to_owned())),
        Ok(_) => Err(wrong(format!("{} is not a folder", parent.display()))),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(wrong(format!("the folder {} does not exist", parent.display())))
        }
        Err(error) => Err(error),
    }
}

/// The folder of a path; the present one for a bare name.
fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

fn is_kernels(path: &Path) -> bool {
    let mut parts = path.components();
    let rooted = parts.next() == Some(Component::RootDir);
    let plain = !path.components().any(|part| part == Component::ParentDir);
    // /dev/shm is an ordinary file system.
    let first = parts.next().map(|part| part.as_os_str().to_owned()).unwrap_or_default();
    let second = parts.next().map(|part| part.as_os_str().to_owned()).unwrap_or_default();
    rooted && plain && (first == "proc" || first == "dev" && second != "shm")
}

#[cfg(unix)]
fn is_socket(found: &Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt;
    found.file_type().is_socket()
}

#[cfg(not(unix))]
fn is_socket(_: &Metadata) -> bool {
    false
}

#[cfg(unix)]
fn is_fifo(found: &Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt;
    found.file_type().is_fifo()
}

#[cfg(not(unix))]
fn is_fifo(_: &Metadata) -> bool {
    false
}

/// An empty file beside `file`, gone when dropped. Also asks whether a file that is there may be written.
fn beside(file: &Path) -> io::Result<NamedTempFile> {
    let old = match OpenOptions::new().write(true).open(file) {
        Ok(old) => Some(old.metadata()?.permissions()),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let mut builder = tempfile::Builder::new();
    builder.prefix(".retryscope-").suffix(".part");
    #[cfg(unix)]
    let new = {
        use std::os::unix::fs::PermissionsExt;
        // The umask takes away from it, as from every new file.
        fs::Permissions::from_mode(0o666)
    };
    #[cfg(unix)]
    builder.permissions(new);
    let temporary = builder.tempfile_in(parent(file))?;
    if let Some(old) = old {
        temporary.as_file().set_permissions(old)?;
    }
    Ok(temporary)
}

fn replace(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut temporary = beside(file)?;
    temporary.write_all(bytes)?;
    temporary.flush()?;
    temporary.as_file().sync_all()?;
    temporary.persist(file).map_err(|error| error.error)?;
    // The name too should survive a power cut. A file system that cannot promise that has still got the file.
    if let Ok(folder) = File::open(parent(file)) {
        let _ = folder.sync_all();
    }
    Ok(())
}

/// Whether a device takes writers. A FIFO is not opened: its reader would see an end before anything was written.
fn probe(device: &Path) -> io::Result<()> {
    if is_fifo(&fs::metadata(device)?) {
        return Ok(());
    }
    open_through(device).map(drop)
}

fn open_through(device: &Path) -> io::Result<File> {
    // Appended, since `/dev/stdout` may be a file that others write too.
    OpenOptions::new().append(true).open(device)
}

fn write_through(device: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = open_through(device)?;
    file.write_all(bytes)?;
    file.flush()?;
    if file.metadata()?.is_file() {
        file.sync_all()?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "output_tests.rs"]
mod tests;
