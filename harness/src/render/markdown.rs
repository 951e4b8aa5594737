//! Results as Markdown: for a page, a pull request, the summary of a CI job.
//!
//! The same order everywhere: a heading that is the answer, tables, what is wrong, how to repeat it. Sentences and figures are
//! those of [`text`](super::text). Whatever is not written here passes [`escaped`], so that no name can start a line, end a
//! cell or become HTML; commands stand in a [`fence`] that nothing in them can close.

use super::text::{
    Style, command, comparison as beside, number, prediction as arithmetic, prediction::changes as edited,
    prediction::shares as bought, run as of_run, sweep as curve, words,
};
use crate::report::{
    Advice, Change, Comparison, Count, Expected, Link, Prediction, PredictionKind, Report, Share, Sweep, Verdict,
};

/// One run.
pub fn run(report: &Report) -> String {
    let mut page = Page::headed(&of_run::headline(report));
    page.paragraph(&format!(
        "{} Requests: {}.",
        verdict(report.verdict),
        escaped(&of_run::outcome(&report.operations))
    ));
    page.list(missed("", report));
    page.paragraph(&format!("Chain: {}", escaped(&report.chain)));
    let mut table = Table::new(&["service"], &["predicted", "received", "traced", "for 1 request"], &[]);
    for row in &report.services {
        table.row([
            escaped(&row.service),
            number::expected(&row.predicted),
            number::cell_or_dash(row.received),
            number::cell_or_dash(row.traced),
            number::or_dash(row.amplification, number::factor),
        ]);
    }
    page.table(&table);
    if report.verdict == Verdict::NotAsPredicted || report.links.iter().any(|link| link.sent != link.received) {
        page.table(&links(&report.links));
    }
    page.list(problems("", report));
    if !report.advice.is_empty() {
        page.table(&advice(&report.advice));
    }
    let told = of_run::told(report).into_iter();
    page.list(told.map(|(label, text)| escaped(&format!("{label}: {text}"))));
    page.commands([report.command.as_str()]);
    page.finish()
}

/// Several runs side by side.
pub fn comparison(comparison: &Comparison) -> String {
    let runs = &comparison.runs;
    let mut page = Page::headed(&beside::headline(runs));
    let labels: Vec<String> = (1..=runs.len()).map(|place| format!("run {place}")).collect();
    page.list(beside::sides(runs).iter().zip(&labels).map(|(side, label)| {
        let (beside::Side::Typed(text) | beside::Side::Told(text)) = side;
        format!("**{label}** {}", escaped(text))
    }));
    if let Some(text) = beside::same_load(runs) {
        page.paragraph(&escaped(&text));
    }
    let title = escaped(&beside::title(runs));
    let heads: Vec<&str> = labels.iter().map(String::as_str).collect();
    let mut table = Table::new(&[&title], &heads, &[]);
    for row in beside::rows(runs) {
        table.row(
            std::iter::once(&row.label)
                .chain(&row.cells)
                .map(|cell| escaped(cell.trim())),
        );
    }
    let verdicts = runs.iter().map(|report| verdict(report.verdict));
    table.row(std::iter::once(String::new()).chain(verdicts));
    page.table(&table);
    let told = runs.iter().zip(&labels);
    page.list(told.flat_map(|(report, label)| of_several(label, report)));
    page.commands(runs.iter().map(|report| report.command.as_str()));
    page.finish()
}

/// One run for each value.
pub fn sweep(sweep: &Sweep) -> String {
    let mut page = Page::headed(&curve::headline(sweep));
    let over = escaped(&sweep.over);
    let figures = [
        "calls for 1 request, predicted",
        "received",
        "requests that fail, predicted",
        "failed",
    ];
    let mut table = Table::new(&[&over], &figures, &[""]);
    for point in &sweep.points {
        table.row([
            escaped(&point.value),
            number::or_dash(point.mean, number::mean),
            number::or_dash(point.received(), number::mean),
            number::or_dash(point.still_fails, number::share),
            number::or_dash(point.failed(), number::share),
            verdict(point.report.verdict),
        ]);
    }
    page.table(&table);
    for text in curve::method(sweep) {
        page.paragraph(&escaped(&text));
    }
    page.list(
        sweep
            .points
            .iter()
            .flat_map(|point| of_several(&curve::named(sweep, point), &point.report)),
    );
    page.commands([sweep.command.as_str()]);
    page.finish()
}

/// The arithmetic alone.
pub fn prediction(prediction: &Prediction) -> String {
    let mut page = Page::headed(&arithmetic::headline(prediction));
    page.paragraph(&format!("Chain: {}", escaped(&prediction.chain)));
    if prediction.formula.contains(" x ") {
        page.paragraph(&format!("Multiplied: {}.", escaped(&prediction.formula)));
    }
    let calls = arithmetic::several_calls(prediction);
    if !calls.is_empty() {
        page.paragraph(&escaped(&calls.join(" ")));
    }
    let chances = arithmetic::chances(prediction);
    if !chances.is_empty() {
        page.paragraph(&escaped(&chances.join(" ")));
    }
    page.table(&services(prediction));
    for (title, scope) in words::SCOPES {
        let rows: Vec<&Change> = prediction
            .changes
            .iter()
            .filter(|change| change.scope == scope)
            .collect();
        if !rows.is_empty() {
            page.table(&changes(title, prediction, &rows));
        }
    }
    let known = bought::known(prediction);
    if !known.is_empty() {
        page.table(&shares(known));
    }
    if let Some(text) = arithmetic::budget(prediction) {
        page.paragraph(&escaped(&text));
    }
    if let Some(text) = arithmetic::capacity::sentence(prediction) {
        page.paragraph(&escaped(&text));
    }
    page.list(prediction.notes.iter().map(|note| escaped(&words::sentence(note))));
    page.commands([prediction.command.as_str()]);
    page.finish()
}

/// What is predicted of each service: a count, and what chance makes of it.
fn services(prediction: &Prediction) -> Table {
    let is_drawn = |row: &crate::report::PredictedService| row.predicted.kind == PredictionKind::Statistical;
    let drawn = prediction.services.iter().any(is_drawn);
    let rated = prediction.services.iter().any(|row| row.per_second.is_some());
    let spread = prediction.services.iter().any(|row| row.distribution.is_some());
    // Counts are those of all requests; how they spread is told of one.
    let (all, of_one) = match arithmetic::requests(prediction) {
        1 => (String::new(), ""),
        requests => (format!(", all {}", number::whole(requests)), "for 1 request: "),
    };
    let mut heads = vec![format!("calls{all}")];
    if drawn {
        heads.extend(["mean", "deviation"].map(|head| format!("{head}{all}")));
    }
    if spread {
        heads.extend(["half", "90 %", "99 %"].map(|head| format!("{of_one}{head}, at most")));
    }
    heads.extend(rated.then(|| "a second".to_owned()));
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let mut table = Table::new(&["service"], &heads, &[]);
    for row in &prediction.services {
        let mut cells = vec![escaped(&row.service), number::expected(&row.predicted)];
        if drawn {
            cells.push(number::or_dash(row.predicted.mean, number::mean));
            cells.push(number::or_dash(row.predicted.sd, number::mean));
        }
        if spread {
            let of = |of: fn(&crate::report::Distribution) -> Count| {
                let found = row.distribution.as_ref().map(of);
                found.map_or_else(|| "-".to_owned(), number::cell)
            };
            cells.extend([of(|found| found.p50), of(|found| found.p90), of(|found| found.p99)]);
        }
        if rated {
            let cell = row.per_second.map(arithmetic::capacity::cell);
            cells.push(cell.unwrap_or_else(|| "-".to_owned()));
        }
        table.row(cells);
    }
    table
}

fn changes(title: &str, prediction: &Prediction, rows: &[&Change]) -> Table {
    let at = escaped(&edited::at(prediction));
    let mut table = Table::new(&[title], &[&at], &["you edit", "afterwards"]);
    for change in rows {
        table.row([
            escaped(&change.change),
            edited::left(change),
            escaped(&change.edits),
            escaped(&change.gives_up),
        ]);
    }
    table
}

fn shares(shares: &[Share]) -> Table {
    let mut table = Table::new(
        &["calls that fail", "policy"],
        &["calls for 1 request", "requests that still fail"],
        &[],
    );
    for share in shares {
        table.row([
            number::share(share.failing),
            escaped(&share.policy),
            bought::calls(share),
            escaped(&bought::failed(share)),
        ]);
    }
    table
}

fn advice(advice: &[Advice]) -> Table {
    let mut table = Table::new(&["change", "you edit"], &["requests", "predicted", "received"], &[""]);
    for row in advice {
        table.row([
            escaped(&row.change),
            escaped(&row.edits),
            number::whole(row.requests),
            number::expected(&row.predicted),
            number::cell_or_dash(row.measured),
            row.verdict.map_or_else(String::new, verdict),
        ]);
    }
    table
}

fn links(links: &[Link]) -> Table {
    let mut table = Table::new(&["link"], &["sent", "received", "factor"], &[]);
    for link in links {
        table.row([
            format!("{} \\> {}", escaped(&link.from), escaped(&link.to)),
            number::cell_or_dash(link.sent),
            number::cell_or_dash(link.received),
            number::or_dash(link.factor, number::factor),
        ]);
    }
    table
}

/// What is wrong with one run of several: what it found, why, and what was expected and did not come.
fn of_several(label: &str, report: &Report) -> Vec<String> {
    let label = format!("**{}** ", escaped(label));
    let mut texts = Vec::new();
    if report.verdict != Verdict::AsPredicted {
        texts.push(format!("{label}{}", escaped(&of_run::headline(report))));
    }
    texts.extend(missed(&label, report));
    texts.extend(problems(&label, report));
    texts
}

/// What was expected and did not come: a step of a job fails by it.
fn missed(label: &str, report: &Report) -> Vec<String> {
    let missed = report.expected.iter().filter(|expected| !expected.met);
    let told = |expected: &Expected| escaped(&words::sentence(&expected.text));
    missed
        .map(|expected| format!("{label}**{}** {}", of_run::MISSED, told(expected)))
        .collect()
}

/// Why there is no agreement.
fn problems(label: &str, report: &Report) -> Vec<String> {
    let mut texts = Vec::new();
    for (head, sentences) in of_run::why(report) {
        for (place, text) in sentences.iter().enumerate() {
            let head = if place == 0 { format!("{head}: ") } else { String::new() };
            texts.push(format!("{label}{}", escaped(&format!("{head}{text}"))));
        }
    }
    texts
}

fn verdict(verdict: Verdict) -> String {
    format!("**{}**", Style::Plain.verdict(verdict))
}

/// Foreign text for a line of Markdown that has begun already: printable ASCII on one line, and none of it markup.
fn escaped(text: &str) -> String {
    let text = words::message(text);
    let letters: Vec<char> = text.chars().collect();
    let digits = letters.iter().take_while(|letter| letter.is_ascii_digit()).count();
    let mut out = String::with_capacity(text.len() + 8);
    for (place, letter) in letters.iter().enumerate() {
        let before = place.checked_sub(1).and_then(|before| letters.get(before));
        let after = letters.get(place + 1);
        let is_within = |neighbour: Option<&char>| neighbour.is_some_and(char::is_ascii_alphanumeric);
        let is_markup = match letter {
            '\\' | '`' | '*' | '[' | ']' | '<' | '>' | '|' | '~' | '&' | '$' | '#' | '!' => true,
            // Within a word it is a letter: UNAVAILABLE would else be unreadable before it is rendered.
            '_' => !(is_within(before) && is_within(after)),
            // What would begin a list, part a page or underline a heading; -24 is a number.
            '-' | '+' | '=' => place == 0 && after.is_none_or(|after| after == letter || *after == ' '),
            '.' | ')' => digits > 0 && place == digits && after.is_none_or(|after| *after == ' '),
            _ => false,
        };
        if is_markup {
            out.push('\\');
        }
        out.push(*letter);
    }
    out
}

/// Lines in a fence that none of them can close.
fn fence(lines: &[String]) -> String {
    let longest = |line: &String| line.split(|letter| letter != '`').map(str::len).max().unwrap_or(0);
    let ticks = "`".repeat(lines.iter().map(longest).max().unwrap_or(0).max(2) + 1);
    format!("{ticks}sh\n{}\n{ticks}", lines.join("\n"))
}

/// Blocks with a blank line between two of them.
struct Page(Vec<String>);

impl Page {
    /// A page that begins with its answer.
    fn headed(answer: &str) -> Self {
        Self(vec![format!("### {}", escaped(answer))])
    }

    /// A line whose foreign parts are escaped already.
    fn paragraph(&mut self, text: &str) {
        self.0.push(text.to_owned());
    }

    /// Items whose foreign parts are escaped already; none, no list.
    fn list(&mut self, items: impl IntoIterator<Item = String>) {
        let items: Vec<String> = items.into_iter().map(|item| format!("- {item}")).collect();
        if !items.is_empty() {
            self.0.push(items.join("\n"));
        }
    }

    fn table(&mut self, table: &Table) {
        self.0.push(table.0.join("\n"));
    }

    /// Commands that can be typed again.
    fn commands<'a>(&mut self, commands: impl IntoIterator<Item = &'a str>) {
        let lines = commands
            .into_iter()
            .flat_map(|line| command::wrapped("", command::PROGRAM, line));
        self.0.push(fence(&lines.collect::<Vec<_>>()));
    }

    fn finish(self) -> String {
        self.0.join("\n\n") + "\n"
    }
}

/// A table: words begin at the left, figures end at the right.
struct Table(Vec<String>);

impl Table {
    /// Columns of words, of figures behind them, of words behind those, by their heads, whose foreign parts are escaped already.
    fn new(words: &[&str], figures: &[&str], more: &[&str]) -> Self {
        let heads = [words, figures, more].concat().join(" | ");
        let rules = [
            vec!["---"; words.len()],
            vec!["---:"; figures.len()],
            vec!["---"; more.len()],
        ];
        Self(vec![
            format!("| {heads} |"),
            format!("| {} |", rules.concat().join(" | ")),
        ])
    }

    /// Cells whose foreign parts are escaped already.
    fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<String> = cells.into_iter().collect();
        self.0.push(format!("| {} |", cells.join(" | ")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::samples;

    #[test]
    fn a_run_is_a_heading_a_table_and_a_command() {
        assert_eq!(
            run(&samples::headline()),
            "\
### 27 calls arrived at inventory for 1 request, as predicted.

**AS PREDICTED** Requests: 1 failed: UNAVAILABLE.

Chain: client \\> frontend x3 \\> checkout x3 \\> pricing x3 \\> inventory down

| service | predicted | received | traced | for 1 request |
| --- | ---: | ---: | ---: | ---: |
| frontend | 1 | 1 | 1 | 1 |
| checkout | 3 | 3 | 3 | 3 |
| pricing | 9 | 9 | 9 | 9 |
| inventory | 27 | 27 | 27 | 27 |

```sh
harness run --seed 27
```
"
        );
    }

    #[test]
    fn a_run_that_is_not_as_predicted_shows_its_links_and_its_reasons() {
        let page = run(&samples::hidden());
        assert!(page.contains("**NOT AS PREDICTED**"), "{page}");
        assert!(page.contains("| pricing \\> inventory | 27 | 108 | 4 |"), "{page}");
        let page = run(&samples::incomplete());
        assert!(
            page.starts_with("### No verdict. 3 of inventory's 27 spans never came"),
            "{page}"
        );
        assert!(page.contains("\n- ") && page.contains("**INCOMPLETE**"), "{page}");
    }

    #[test]
    fn runs_stand_side_by_side_with_what_differs() {
        let page = comparison(&samples::comparison());
        for line in [
            "### 27 and 3 calls arrived at inventory for 1 request.",
            "| at inventory | run 1 | run 2 |",
            "| received | 27 | 3 |",
            "| against run 1 |  | -24 |",
            "| work in vain | 40 | 10 |",
            "|  | **AS PREDICTED** | **AS PREDICTED** |",
            "harness run --owner frontend --seed 27",
        ] {
            assert!(page.lines().any(|found| found == line), "{line}\n{page}");
        }
    }

    /// What a name may want to be.
    const HOSTILE: [&str; 9] = [
        "a|b|c",
        "```\n# heading",
        "<script>alert(1)</script>",
        "[click](http://evil)",
        "![x](http://evil)",
        "- item",
        "1. item",
        "**bold** _it_ ~~no~~ $x$ &amp;",
        "\n\n::set-env name=x::y\n| --- |",
    ];

    #[test]
    fn no_name_breaks_out_of_its_line_or_its_cell() {
        for name in HOSTILE {
            let text = escaped(name);
            assert!(!text.contains('\n'), "{name:?}: {text}");
            let letters: Vec<char> = text.chars().collect();
            for (place, letter) in letters.iter().enumerate() {
                if "`*[]<>|~&$#!".contains(*letter) {
                    let slashes = letters[..place]
                        .iter()
                        .rev()
                        .take_while(|before| **before == '\\')
                        .count();
                    assert!(slashes % 2 == 1, "{letter} is markup in {text}");
                }
            }
            assert!(!text.starts_with("- ") && !text.starts_with("1. "), "{text}");
        }
        assert_eq!(escaped("DEADLINE_EXCEEDED"), "DEADLINE_EXCEEDED");
        assert_eq!(escaped("_it_"), "\\_it\\_");
        assert_eq!(escaped("---"), "\\---");
        assert_eq!(escaped("1.5 calls. - no"), "1.5 calls. - no");
    }

    /// Every kind of page with these words wherever words may stand.
    fn pages(name: &str) -> Vec<String> {
        let mut report = samples::full();
        for row in &mut report.services {
            name.clone_into(&mut row.service);
        }
        for link in &mut report.links {
            (link.from, link.to) = (name.to_owned(), name.to_owned());
        }
        for reason in &mut report.reasons {
            name.clone_into(&mut reason.text);
        }
        for advice in &mut report.advice {
            (advice.change, advice.edits) = (name.to_owned(), name.to_owned());
        }
        for expected in &mut report.expected {
            (expected.met, expected.text) = (false, name.to_owned());
        }
        report.verdict = Verdict::NotAsPredicted;
        report.chain = format!("client > {name} > {name}");
        report.command = format!("run {}", crate::scenario::shell_quoted(name));
        report.scenario = serde_json::json!({ "name": name });
        report.operations.failed = 1;
        report.operations.by_code.insert(name.to_owned(), 1);
        let mut sums = samples::prediction();
        for row in &mut sums.services {
            name.clone_into(&mut row.service);
        }
        for change in &mut sums.changes {
            (change.change, change.edits, change.gives_up) = (name.to_owned(), name.to_owned(), name.to_owned());
        }
        for share in &mut sums.shares {
            name.clone_into(&mut share.policy);
        }
        sums.bottom.service = name.to_owned();
        sums.notes = vec![name.to_owned()];
        sums.chain = format!("{name} > {name}");
        sums.formula = format!("{name} x {name}");
        let mut several = samples::sweep();
        name.clone_into(&mut several.over);
        for point in &mut several.points {
            name.clone_into(&mut point.value);
            point.report = report.clone();
        }
        let both = Comparison {
            runs: vec![report.clone(), report.clone()],
            ..samples::comparison()
        };
        vec![run(&report), comparison(&both), prediction(&sums), sweep(&several)]
    }

    #[test]
    fn every_line_of_a_page_is_ours_whatever_the_names_are() {
        for name in HOSTILE {
            for page in pages(name) {
                let mut fenced = None;
                for line in page.lines() {
                    if let Some(ticks) = fenced {
                        if line == ticks {
                            fenced = None;
                        }
                        assert!(!line.trim_start().starts_with("::"), "{line}");
                        continue;
                    }
                    if line.starts_with("```") {
                        fenced = Some(line.trim_end_matches("sh"));
                        continue;
                    }
                    let is_ours = line.is_empty()
                        || ["### ", "| ", "- ", "**", "Chain: "]
                            .iter()
                            .any(|start| line.starts_with(start))
                        || line.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '\\');
                    assert!(is_ours && line.is_ascii(), "{name:?}: {line}\n{page}");
                    assert!(!line.contains('<') || line.contains("\\<"), "{line}");
                }
                assert_eq!(fenced, None, "a fence stays open: {page}");
            }
        }
    }

    #[test]
    fn every_row_of_a_table_has_the_cells_of_its_head() {
        let cells = |line: &str| {
            let letters: Vec<char> = line.chars().collect();
            let bars = letters.iter().enumerate().filter(|(_, letter)| **letter == '|');
            let parts = bars.filter(|(place, _)| {
                letters[..*place]
                    .iter()
                    .rev()
                    .take_while(|before| **before == '\\')
                    .count()
                    % 2
                    == 0
            });
            parts.count()
        };
        for name in HOSTILE.into_iter().chain(["inventory"]) {
            for page in pages(name) {
                for table in page.split("\n\n").filter(|block| block.starts_with("| ")) {
                    let widths: Vec<usize> = table.lines().map(cells).collect();
                    assert!(
                        widths.len() > 2 && widths.iter().all(|width| *width == widths[0]),
                        "{table}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_sweep_is_one_row_for_each_value() {
        let page = sweep(&samples::sweep());
        assert!(page.contains("| p | calls for 1 request, predicted |"), "{page}");
        assert!(
            page.contains("| 1 | 3.00 | 3.00 | 100 % | 100 % | **AS PREDICTED** |"),
            "{page}"
        );
    }

    #[test]
    fn a_prediction_has_what_to_change_and_what_it_buys() {
        let page = prediction(&samples::prediction());
        assert!(
            page.starts_with("### ") && page.contains("| you edit | afterwards |"),
            "{page}"
        );
        assert!(page.contains("```sh\nharness predict"), "{page}");
    }

    #[test]
    fn no_share_is_written_as_an_impossibility_nor_a_sure_count_as_an_average() {
        let page = prediction(&samples::prediction_full());
        for line in [
            "| 50 % | as it is | 2.00 | 7.5e-9 |",
            "| 90 % | as it is | 9.42 | \\< 1e-300 |",
            "| 100 % | as it is | 27 | 100 % |",
        ] {
            assert!(page.lines().any(|found| found == line), "{line}\n{page}");
        }
    }

    #[test]
    fn what_was_not_expected_stands_in_front_and_is_marked() {
        let mut report = samples::headline();
        report.expected = vec![Expected {
            expression: "inventory<=9".to_owned(),
            met: false,
            text: "You expected at most 9. 27 were predicted and 27 arrived.".to_owned(),
        }];
        let page = run(&report);
        let said = page.find("\n- **NOT EXPECTED** You expected at most 9. 27 were predicted");
        assert!(said.is_some() && said < page.find("| service |"), "{page}");
        assert_eq!(page.matches("You expected").count(), 1, "{page}");
    }

    #[test]
    fn quantiles_are_at_most() {
        let page = prediction(&samples::prediction_full());
        assert!(
            page.contains("| half, at most | 90 %, at most | 99 %, at most |"),
            "{page}"
        );
    }

    #[test]
    fn a_budget_is_told_as_on_the_screen() {
        let mut sums = samples::prediction_full();
        let page = prediction(&sums);
        let text = "3 layers can retry. With a budget of 20 % at each of them: 1.728 calls at inventory for 1 request, at most.";
        assert!(page.lines().any(|line| line == text), "{page}");
        assert!(page.contains("| 20 % budget, 3 layers | 1.728 at most |"), "{page}");
        if let Some(budget) = &mut sums.budget {
            (budget.layers, budget.bottom) = (0, 1.0);
        }
        let page = prediction(&sums);
        assert!(
            page.contains("\n\nNobody retries here: a budget has nothing to limit.\n\n"),
            "{page}"
        );
    }

    #[test]
    fn totals_and_what_is_of_one_request_are_told_apart() {
        let mut sums = samples::prediction_full();
        sums.scenario = serde_json::json!({"load": {"requests": 40}});
        for row in &mut sums.services {
            (row.predicted.kind, row.predicted.mean, row.predicted.sd) =
                (PredictionKind::Statistical, Some(80.0), Some(8.944));
        }
        let page = prediction(&sums);
        assert!(
            page.contains(
                "| service | calls, all 40 | mean, all 40 | deviation, all 40 | for 1 request: half, at most \
                 | for 1 request: 90 %, at most | for 1 request: 99 %, at most | a second |"
            ),
            "{page}"
        );
        assert!(
            page.contains("| One edit | at inventory for 1, at most | you edit |"),
            "{page}"
        );
    }

    #[test]
    fn a_service_that_calls_several_times_is_told_on_every_page() {
        let scenario = serde_json::json!({"services": {"checkout": {"calls": 2, "fan_out": "parallel"}}});
        let sentence = "checkout calls pricing 2 times for each call that arrives there, all at once.";
        let mut report = samples::headline();
        report.scenario = scenario.clone();
        let page = run(&report);
        assert!(page.contains(sentence), "{page}");
        let mut sums = samples::prediction();
        (sums.scenario, sums.formula) = (scenario, "3 x 2 calls x 3 x 3".to_owned());
        let page = prediction(&sums);
        assert!(page.contains(sentence), "{page}");
        assert!(page.contains("\n\nMultiplied: 3 x 2 calls x 3 x 3.\n\n"), "{page}");
    }

    #[test]
    fn a_run_says_what_was_drawn_and_what_was_in_vain() {
        let mut report = samples::thousand();
        report.services[3].predicted.mean = Some(26_000.0);
        report.work = Some(crate::report::Work {
            arrivals: 40_000,
            needed: 3_600,
            in_vain: 36_400,
        });
        let page = run(&report);
        for line in [
            "- in vain: 36,400 of 40,000 arrivals at the services",
            "- drawn: with seed 27; 26,000 would arrive on average",
        ] {
            assert!(page.lines().any(|found| found == line), "{line}\n{page}");
        }
        report.notes = vec![crate::report::Note {
            kind: "timing".to_owned(),
            text: "The counts depend on time.".to_owned(),
        }];
        assert!(run(&report).contains("\n- timing: The counts depend on time.\n"));
    }

    #[test]
    fn why_there_is_no_verdict_is_said_once() {
        let mut report = samples::incomplete();
        report.operations.not_sent = 299;
        let reason = |kind: &str, text: &str| crate::report::Reason {
            kind: kind.to_owned(),
            text: text.to_owned(),
        };
        report.reasons = vec![
            reason("not_sent", "Requests that were planned and never started: 299."),
            reason("requests_sent", "Requests planned: 300; started: 1."),
            reason("late_spans", "1 span came late."),
        ];
        report.scenario = serde_json::json!({"load": {"rate": 1_000_000}});
        let page = run(&report);
        assert!(
            page.starts_with("### No verdict. Requests that were planned and never started: 299.\n"),
            "{page}"
        );
        assert!(
            page.matches("never started").count() == 1 && !page.contains("started: 1."),
            "{page}"
        );
        assert!(
            page.contains("\n- Why: 1 span came late.\n- Way on: a lower --rate"),
            "{page}"
        );
        let page = run(&samples::hidden());
        assert!(
            page.contains(
                "\n- How we know: pricing sent 27 attempts, by its own count and by its spans.\n- inventory received"
            ),
            "{page}"
        );
    }

    #[test]
    fn columns_of_words_begin_at_the_left_and_figures_end_at_the_right() {
        let page = prediction(&samples::prediction());
        assert!(
            page.contains("| One edit | at inventory | you edit | afterwards |\n| --- | ---: | --- | --- |"),
            "{page}"
        );
        let page = prediction(&samples::prediction_full());
        assert!(page.contains("| --- | --- | ---: | ---: |"), "{page}");
        let page = run(&samples::full());
        assert!(page.contains("| --- | --- | ---: | ---: | ---: | --- |"), "{page}");
    }
}
