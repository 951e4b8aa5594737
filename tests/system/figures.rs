//! What `--svg` writes: figures of real runs, read back as XML.

use crate::support::{check, repository, run_plain, test};
use libtest_mimic::{Failed, Trial};
use roxmltree::Document;
use std::path::Path;

pub fn tests() -> Vec<Trial> {
    vec![
        test("figures::a_run_draws_each_call_that_arrived", || {
            let figure = drawn(&["run"])?;
            says(&figure, "27 calls arrived at inventory for 1 request, as predicted.")?;
            says(&figure, "harness run per-hop")?;
            // Crosses: 1 + 3 + 9 + 27, and one that explains them.
            let crosses = pieces(&figure, "#c04a00")?;
            check(crosses == 41, || format!("{crosses} crosses"))
        }),
        test("figures::a_comparison_draws_the_27_against_the_3", || {
            let figure = drawn(&["compare", "per-hop", "single-owner"])?;
            says(&figure, "27 and 3 calls arrived at inventory for 1 request.")?;
            let crosses = pieces(&figure, "#c04a00")?;
            check(crosses == 40 + 10 + 1, || format!("{crosses} crosses"))
        }),
        test("figures::proxies_are_drawn_among_the_services", || {
            let figure = drawn(&["run", "web x3*3 > db down"])?;
            says(&figure, "web-proxy")?;
            let crosses = pieces(&figure, "#c04a00")?;
            check(crosses == 1 + 3 + 9 + 1, || format!("{crosses} crosses"))
        }),
        test("figures::those_of_the_readme_are_what_comes_out", || {
            let folder = tempfile::tempdir()?;
            let readme = std::fs::read_to_string(repository().join("README.md"))?;
            let mut compared = 0;
            for line in readme
                .lines()
                .filter_map(|line| line.strip_prefix("$ target/release/harness "))
            {
                let Some((command, name)) = line.split_once(" --svg ") else {
                    continue;
                };
                let file = folder.path().join(name);
                let ran = written(&command.split(' ').collect::<Vec<_>>(), &file);
                check(ran.exit == 0, || format!("{line}: exit {}: {}", ran.exit, ran.stderr))?;
                let (drawn, kept) = (
                    std::fs::read(&file)?,
                    std::fs::read(repository().join("harness/docs").join(name))?,
                );
                check(drawn == kept, || {
                    format!("harness/docs/{name} is not what {command} draws")
                })?;
                compared += 1;
            }
            check(compared == 2, || format!("{compared} figures were compared"))
        }),
        test("figures::a_figure_on_stdout_is_alone_there", || {
            for arguments in [&["predict", "--svg", "-"][..], &["predict", "flaky", "--svg", "-"]] {
                let ran = run_plain(arguments);
                check(ran.exit == 0 && ran.stdout.starts_with("<svg"), || ran.stdout.clone())?;
                Document::parse(&ran.stdout)?;
            }
            Ok(())
        }),
        test(
            "figures::a_run_that_is_not_as_predicted_is_drawn_and_exits_with_1",
            || {
                let folder = tempfile::tempdir()?;
                let file = folder.path().join("hidden.svg");
                let ran = written(&["run", "hidden-layer"], &file);
                check(ran.exit == 1, || format!("exit {}: {}", ran.exit, ran.stderr))?;
                let figure = std::fs::read_to_string(&file)?;
                for words in ["108", "27 predicted", "x3 ?x4", "1 request. Not as predicted."] {
                    says(&figure, words)?;
                }
                Ok(())
            },
        ),
        test("figures::one_stdout_takes_one_file", || {
            for arguments in [
                ["run", "--json", "-", "--svg", "-"],
                ["predict", "--svg", "-", "--json", "-"],
            ] {
                let ran = run_plain(&arguments);
                check(ran.exit == 2 && ran.stdout.is_empty(), || ran.stdout.clone())?;
                check(ran.stderr.contains("--json - and --svg -"), || ran.stderr.clone())?;
            }
            Ok(())
        }),
        test(
            "figures::a_file_that_cannot_be_written_is_known_before_anything_starts",
            || {
                let folder = tempfile::tempdir()?;
                for file in [folder.path().to_owned(), folder.path().join("none/figure.svg")] {
                    let ran = written(&["run"], &file);
                    let is_named = ran.stderr.contains(&*file.to_string_lossy());
                    check(ran.exit == 2 && ran.stdout.is_empty() && is_named, || {
                        format!("exit {}: {}{}", ran.exit, ran.stdout, ran.stderr)
                    })?;
                }
                let left = std::fs::read_dir(folder.path())?.count();
                check(left == 0, || format!("{left} files are left"))
            },
        ),
    ]
}

/// The figure of a command that ends well.
fn drawn(arguments: &[&str]) -> Result<String, Failed> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("figure.svg");
    let ran = written(arguments, &file);
    check(ran.exit == 0, || format!("exit {}: {}", ran.exit, ran.stderr))?;
    // The screen is there as without the file.
    check(!ran.stdout.is_empty(), || "nothing on stdout".to_owned())?;
    let names = std::fs::read_dir(folder.path())?.count();
    check(names == 1, || format!("{names} files beside each other"))?;
    Ok(std::fs::read_to_string(&file)?)
}

fn written(arguments: &[&str], file: &Path) -> crate::support::Ran {
    let mut arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
    arguments.extend(["--svg".to_owned(), file.display().to_string()]);
    run_plain(&arguments)
}

/// Whether a text of the figure holds these words; a title may be broken into lines.
fn says(figure: &str, words: &str) -> Result<(), Failed> {
    let document = Document::parse(figure)?;
    let texts = document.descendants().filter_map(|node| node.text());
    check(texts.into_iter().any(|text| text.contains(words)), || {
        format!("{words:?} is not in {figure}")
    })
}

/// Pieces of the paths of one colour.
fn pieces(figure: &str, ink: &str) -> Result<usize, Failed> {
    let document = Document::parse(figure)?;
    let paths = document
        .descendants()
        .filter(|node| node.attribute("stroke") == Some(ink));
    Ok(paths
        .filter_map(|path| path.attribute("d"))
        .map(|data| data.matches('M').count())
        .sum())
}
