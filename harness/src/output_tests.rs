//! Outputs on a real file system.

use super::*;

fn file(path: impl Into<PathBuf>) -> Target {
    Target::File(path.into())
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_dash_is_standard_output() {
    assert_eq!(Target::parse("-"), Target::Stdout);
    assert_eq!(Target::parse("./-"), file("./-"));
}

#[test]
fn a_new_name_is_written_and_an_old_file_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.json");
    write(&file(&path), b"one").unwrap();
    write(&file(&path), b"2").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"2");
    assert_eq!(names(folder.path()), ["report.json"]);
}

#[test]
fn asking_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    check_writable(&file(folder.path().join("report.json"))).unwrap();
    assert!(names(folder.path()).is_empty());
    fs::write(folder.path().join("old"), "kept").unwrap();
    check_writable(&file(folder.path().join("old"))).unwrap();
    assert_eq!(fs::read(folder.path().join("old")).unwrap(), b"kept");
    check_writable(&Target::Stdout).unwrap();
}

#[test]
fn a_folder_a_missing_parent_and_a_file_as_parent_are_named() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("plain"), "").unwrap();
    let missing = folder.path().join("no/report.json");
    for (path, reason) in [
        (folder.path().to_owned(), "it is a folder"),
        (folder.path().join("new/"), "it names a folder, not a file"),
        (missing, "does not exist"),
        (folder.path().join("plain/report.json"), "ot a directory"),
        (PathBuf::new(), "the name is empty"),
    ] {
        for outcome in [check_writable(&file(&path)), write(&file(&path), b"x")] {
            let text = outcome.unwrap_err().to_string();
            assert!(
                text.contains(reason) && text.contains(&format!("{path:?}")),
                "{path:?}: {text}"
            );
        }
    }
    assert_eq!(names(folder.path()), ["plain"]);
}

#[cfg(unix)]
mod unix {
    use super::*;
    use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};

    #[test]
    fn a_link_stays_and_its_target_is_written() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("there")).unwrap();
        let link = folder.path().join("link");
        symlink("there/report.json", &link).unwrap();
        // At first the link leads to nothing yet.
        for text in ["one", "2"] {
            check_writable(&file(&link)).unwrap();
            write(&file(&link), text.as_bytes()).unwrap();
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
            assert_eq!(
                fs::read_to_string(folder.path().join("there/report.json")).unwrap(),
                text
            );
        }
        assert_eq!(names(&folder.path().join("there")), ["report.json"]);
    }

    #[test]
    fn links_in_a_circle_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        symlink("b", folder.path().join("a")).unwrap();
        symlink("a", folder.path().join("b")).unwrap();
        let text = write(&file(folder.path().join("a")), b"x").unwrap_err().to_string();
        assert!(text.contains("links"), "{text}");
    }

    #[test]
    fn devices_are_written_through() {
        write(&file("/dev/null"), b"x").unwrap();
        check_writable(&file("/dev/null")).unwrap();
        assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        symlink("/dev/null", &link).unwrap();
        write(&file(&link), b"x").unwrap();
        assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    }

    #[test]
    fn a_full_device_is_an_error() {
        let text = write(&file("/dev/full"), b"x").unwrap_err().to_string();
        assert!(text.contains("/dev/full") && text.contains("No space left"), "{text}");
    }

    #[test]
    fn an_open_file_behind_the_kernels_name_keeps_what_it_has() {
        use std::os::fd::AsRawFd;
        let folder = tempfile::tempdir().unwrap();
        let mut open = File::create(folder.path().join("log")).unwrap();
        open.write_all(b"before ").unwrap();
        write(&file(format!("/proc/self/fd/{}", open.as_raw_fd())), b"after").unwrap();
        assert_eq!(fs::read(folder.path().join("log")).unwrap(), b"before after");
    }

    #[test]
    fn a_fifo_gets_the_bytes_and_stays_one() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        if !std::process::Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .is_ok_and(|status| status.success())
        {
            return;
        }
        check_writable(&file(&fifo)).unwrap();
        let reader = std::thread::spawn({
            let fifo = fifo.clone();
            move || fs::read(fifo).unwrap()
        });
        write(&file(&fifo), b"27").unwrap();
        assert_eq!(reader.join().unwrap(), b"27");
        assert!(fs::metadata(&fifo).unwrap().file_type().is_fifo());
    }

    #[test]
    fn a_socket_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let text = check_writable(&file(&path)).unwrap_err().to_string();
        assert!(text.contains("socket"), "{text}");
    }

    #[test]
    fn permissions_are_those_of_a_plain_new_file_or_of_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let mode = |name: &str| fs::metadata(folder.path().join(name)).unwrap().permissions().mode() & 0o777;
        fs::write(folder.path().join("plain"), "").unwrap();
        write(&file(folder.path().join("new")), b"x").unwrap();
        assert_eq!(mode("new"), mode("plain"));
        fs::set_permissions(folder.path().join("plain"), fs::Permissions::from_mode(0o640)).unwrap();
        write(&file(folder.path().join("plain")), b"x").unwrap();
        assert_eq!(mode("plain"), 0o640);
    }

    #[test]
    fn a_folder_that_may_not_be_written_keeps_its_file() {
        let folder = tempfile::tempdir().unwrap();
        if fs::metadata(folder.path()).unwrap().uid() == 0 {
            // Permissions do not bind root.
            return;
        }
        let path = folder.path().join("report.json");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o555)).unwrap();
        let asked = check_writable(&file(&path));
        let written = write(&file(&path), b"new");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(asked.is_err() && written.is_err());
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(names(folder.path()), ["report.json"]);
    }
}

#[test]
fn what_is_appended_stands_behind_what_was_there() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("summary.md");
    append(&file, b"one\n").unwrap();
    append(&file, b"two\n").unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "one\ntwo\n");
    assert!(append(folder.path(), b"three").is_err());
}
