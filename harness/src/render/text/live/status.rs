//! The screen of what a chain that is up has counted.

use super::{
    super::{
        Style, command, fan_out, number,
        picture::{self, Node},
        words::{self, LABEL, Screen, WIDTH, shown},
    },
    offers, settings, spaced,
};
use crate::report::{Count, LiveCount, LiveGeneration, LiveService, Status};

/// Most rows of earlier settings on a screen.
const EARLIER: usize = 10;
/// Columns of a row's figure, at least.
const FIGURE: usize = 6;
/// Columns of a name over figures, at most.
const NAME: usize = 40;

/// The state of a chain that is up.
pub fn status(status: &Status, program: &str, style: Style) -> String {
    let mut screen = Screen::default();
    screen.headline(&headline(status), style);
    screen.gap();
    screen.lines(chain(status));
    screen.gap();
    screen.lines(in_force(status));
    screen.gap();
    screen.lines(unusual(status));
    screen.gap();
    arrived(&mut screen, status);
    screen.lines(notes(status));
    screen.gap();
    offer(&mut screen, status, program);
    screen.finish()
}

/// What arrived under the settings in force.
fn current(status: &Status) -> Option<&LiveGeneration> {
    status
        .generations
        .iter()
        .find(|row| row.generation == status.generation)
}

fn of<'a>(counts: &'a [LiveCount], service: &str) -> Option<&'a LiveCount> {
    counts.iter().find(|count| count.service == service)
}

fn headline(status: &Status) -> String {
    let now = format!("under {}, now in force", settings(status.generation));
    let (Some(top), Some(bottom)) = (status.services.first(), status.services.last()) else {
        return "0 services are up.".to_owned();
    };
    let received = |service: &LiveService| {
        let counts = current(status).map_or(&[][..], |row| &row.services);
        of(counts, &service.service).map_or(0, |count| count.received)
    };
    let (first, last) = (received(top), received(bottom));
    if first == 0 && last == 0 {
        return format!("0 calls arrived {now}.");
    }
    // A client that retries reaches the top service more than once: these are calls there, and may be fewer requests.
    format!(
        "{} arrived at {} for {} at {} {now}.",
        number::of(last, "call"),
        shown(&bottom.service),
        number::whole(first),
        shown(&top.service)
    )
}

/// The chain with the attempts in force over what arrived under them.
fn chain(status: &Status) -> Vec<String> {
    let client = Node {
        name: "client".to_owned(),
        under: String::new(),
    };
    let counts = current(status).map_or(&[][..], |row| &row.services);
    let services = status.services.iter().map(|row| Node {
        name: row.service.clone(),
        under: picture::under(of(counts, &row.service).map(|count| count.received)),
    });
    let nodes: Vec<Node> = std::iter::once(client).chain(services).collect();
    // What the client is told stands in each call, not in the services.
    let arrows = status.services.iter().map(|row| row.attempts.unwrap_or(1).into());
    let arrows: Vec<String> = std::iter::once(1).chain(arrows).map(picture::arrow).collect();
    picture::chain(&nodes, &arrows)
}

/// The settings of each service.
fn in_force(status: &Status) -> Vec<String> {
    const ATTEMPTS: &str = "attempts";
    const RETRY_ON: &str = "retry on";
    let title = settings(status.generation);
    let retry_on = |row: &LiveService| row.retry_on.as_deref().map_or_else(|| "-".to_owned(), spaced);
    let longest = |texts: &mut dyn Iterator<Item = usize>, least: usize| texts.max().unwrap_or(0).max(least);
    let codes = longest(
        &mut status.services.iter().map(|row| retry_on(row).len()),
        RETRY_ON.len(),
    );
    let faults = longest(&mut status.services.iter().map(|row| shown(&row.fault).len()), 5);
    let names = picture::name_columns(
        status
            .services
            .iter()
            .map(|row| row.service.as_str())
            .chain([title.as_str()]),
        43,
    );
    let room = WIDTH - names - ATTEMPTS.len() - 6;
    if codes + faults > room {
        return in_words(status, title);
    }
    let mut lines = vec![format!("{title:<names$}{ATTEMPTS}   {RETRY_ON:<codes$}   fault")];
    lines.extend(status.services.iter().map(|row| {
        let attempts = row.attempts.map_or_else(|| "-".to_owned(), number::whole);
        format!(
            "{:<names$}{attempts:>8}   {:<codes$}   {}",
            words::name(&row.service, names - 1),
            retry_on(row),
            shown(&row.fault)
        )
    }));
    lines
}

/// The settings of each service where they need more room than a table has.
fn in_words(status: &Status, title: String) -> Vec<String> {
    let rows = status.services.iter().flat_map(|row| {
        let mut text = Vec::new();
        if let Some(attempts) = row.attempts {
            let codes = row.retry_on.as_deref().map_or_else(String::new, spaced);
            let attempts = number::of(attempts, "attempt");
            text.push(if codes.is_empty() {
                attempts
            } else {
                format!("{attempts} on {codes}")
            });
        }
        text.push(format!("fault {}", shown(&row.fault)));
        words::wrapped(
            &format!("  {}   ", words::name(&row.service, 40)),
            LABEL,
            &text.join("; "),
        )
    });
    std::iter::once(title).chain(rows).collect()
}

/// What is not as it is by default, and who has other settings.
fn unusual(status: &Status) -> Vec<String> {
    let mut lines = Vec::new();
    let mut say = |label: &str, text: String| lines.extend(words::labelled(label, &text));
    for (place, row) in status.services.iter().enumerate() {
        let name = shown(&row.service);
        if let Some(backoff) = &row.backoff {
            say(
                "back-off",
                format!("{name} waits before it tries again: {}", spaced(backoff)),
            );
        }
        if let Some(limit) = &row.attempt_timeout {
            say("limit", format!("{name} gives each attempt {}", shown(limit)));
        }
        if let Some(delay) = &row.hedge {
            let text = format!(
                "{name} sends its next attempt after {}, without a failure",
                shown(delay)
            );
            say("hedge", text);
        }
        if let Some(throttle) = &row.throttle {
            let text = format!(
                "{name} retries while more than half of its tokens are left: {}",
                spaced(throttle)
            );
            say("throttle", text);
        }
        if let Some(budget) = &row.budget {
            say("budget", format!("of {name}'s retries: {}", spaced(budget)));
        }
        if row.commit.as_deref() == Some("message") {
            say(
                "commit",
                format!("{name} retries answers that have begun, up to a second message"),
            );
        }
        if row.pushback == Some(false) {
            say("pushback", format!("{name} retries also where it is asked not to"));
        }
        if row.only_first_tries == Some(true) {
            say("first tries", format!("{name} retries no call that is a retry itself"));
        }
        if let Some(deadline) = row.deadline.as_deref().filter(|deadline| *deadline != "pass") {
            let text = match deadline {
                "drop" => format!("{name} passes none on"),
                most => format!("{name} passes on {} at most", shown(most)),
            };
            say("deadline", text);
        }
        if row.detached {
            say("detached", format!("{name} works on when its caller has left"));
        }
        if let (Some(calls @ 2..), Some(callee)) = (row.calls, status.services.get(place + 1)) {
            let is_parallel = row.fan_out.as_deref() == Some("parallel");
            say(
                "calls",
                fan_out::of_one(&name, &shown(&callee.service), calls.into(), is_parallel),
            );
        }
        if let Some(fault) = &row.client_fault {
            say("fault", words::client_fault(&row.service, fault));
        }
        if let Some(code) = row.on_failure.as_deref().filter(|code| *code != "pass") {
            say(
                "on failure",
                format!("{name} answers {} when its own call failed", shown(code)),
            );
        }
        if row.transport_codes != "normalized" {
            say(
                "codes",
                format!("{} at {name}, as the transport gives them", shown(&row.transport_codes)),
            );
        }
    }
    let behind = status.services.iter().filter(|row| row.generation != status.generation);
    let behind: Vec<String> = behind
        .map(|row| format!("{} has {}", shown(&row.service), settings(row.generation)))
        .collect();
    if !behind.is_empty() {
        let text = format!(
            "{}, not {}: a request meets both. Switch again to put one in force everywhere.",
            behind.join(", "),
            status.generation
        );
        say("Not the same", text);
    }
    lines
}

/// A row of figures, one a service from the top.
struct Row {
    label: String,
    figures: Vec<u64>,
}

impl Row {
    fn new(label: impl Into<String>, status: &Status, figure: impl Fn(&LiveService) -> u64) -> Self {
        Self {
            label: label.into(),
            figures: status.services.iter().map(figure).collect(),
        }
    }

    fn counts(label: impl Into<String>, status: &Status, counts: &[LiveCount]) -> Self {
        Self::new(label, status, |row| {
            of(counts, &row.service).map_or(0, |count| count.received)
        })
    }

    fn is_zero(&self) -> bool {
        self.figures.iter().all(|figure| *figure == 0)
    }
}

/// What arrived: under the settings in force, under earlier ones, and in all.
fn arrived(screen: &mut Screen, status: &Status) {
    let now = current(status).map_or(&[][..], |row| &row.services);
    let mut rows = vec![Row::counts(
        format!("{}, in force", settings(status.generation)),
        status,
        now,
    )];
    // The newest first: what it was before is asked more often than how it began.
    let earlier = status
        .generations
        .iter()
        .rev()
        .filter(|row| row.generation != status.generation);
    let earlier: Vec<Row> = earlier
        .map(|row| match row.generation {
            0 => Row::counts("older settings", status, &row.services),
            number => Row::counts(settings(number), status, &row.services),
        })
        .filter(|row| !row.is_zero())
        .collect();
    let hidden = earlier.len().saturating_sub(EARLIER);
    rows.extend(earlier.into_iter().take(EARLIER));
    if status.mixed.operations > 0 {
        rows.push(Row::counts("met two settings", status, &status.mixed.services));
    }
    rows.push(Row::new("in all", status, |row| row.received));
    let parts = [
        Row::new("  by other clients", status, |row| row.foreign),
        Row::new("  late", status, |row| row.late),
    ];
    rows.extend(parts.into_iter().filter(|row| !row.is_zero()));
    rows.push(Row::new("  in flight", status, |row| row.in_flight));
    screen.lines(table(status, &rows));
    if hidden > 0 {
        let are = if hidden == 1 { "is" } else { "are" };
        let text = format!(
            "{} {are} in the report (--json), and among all.",
            number::of(hidden as u64, "row")
        );
        screen.lines(words::labelled("Older", &text));
    }
}

/// Figures under the names of their services, or one line a row where so many names do not fit.
fn table(status: &Status, rows: &[Row]) -> Vec<String> {
    let labels = rows.iter().map(|row| row.label.len()).max().unwrap_or(0).max(LABEL) + 3;
    let figure = |figure: u64| number::cell(Count::Of(figure.into()));
    let figures: Vec<usize> = (0..status.services.len())
        .map(|place| {
            let figures = rows.iter().map(|row| figure(row.figures[place]).len());
            figures.max().unwrap_or(0).max(FIGURE)
        })
        .collect();
    // Names give way as far as they must, figures never do.
    let at_most = |most: usize| -> Vec<usize> {
        let rows = status.services.iter().zip(&figures);
        rows.map(|(row, figures)| shown(&row.service).len().min(most).max(*figures))
            .collect()
    };
    let fitting = (FIGURE..=NAME).rev().map(at_most);
    let mut fitting =
        fitting.filter(|widths| labels + widths.iter().map(|width| width + 3).sum::<usize>() <= WIDTH + 3);
    let Some(widths) = fitting.next() else {
        let head = words::wrapped(
            &format!("{:<labels$}", "arrived"),
            labels,
            "at each service, from the top",
        );
        let rows = rows.iter().flat_map(|row| {
            let figures: Vec<String> = row.figures.iter().map(|each| figure(*each)).collect();
            words::wrapped(&format!("{:<labels$}", row.label), labels, &figures.join(" "))
        });
        return head.into_iter().chain(rows).collect();
    };
    let line = |label: &str, cells: &mut dyn Iterator<Item = String>| {
        let cells: Vec<String> = cells
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:>width$}"))
            .collect();
        format!("{label:<labels$}{}", cells.join("   "))
    };
    let mut names = status
        .services
        .iter()
        .zip(&widths)
        .map(|(row, width)| words::name(&row.service, *width));
    let mut lines = vec![line("arrived", &mut names)];
    lines.extend(
        rows.iter()
            .map(|row| line(&row.label, &mut row.figures.iter().map(|each| figure(*each)))),
    );
    lines
}

/// What has to be said about these figures.
fn notes(status: &Status) -> Vec<String> {
    let mut lines = Vec::new();
    let mixed = &status.mixed;
    let seen = status.generations.len() > 1;
    if mixed.operations > 0 {
        let are = if mixed.operations == 1 { "is" } else { "are" };
        let more = if mixed.complete {
            ""
        } else {
            ", and may be more: records of single calls had to be given up"
        };
        let text = format!(
            "{} met two settings and {are} counted apart{more}.",
            number::of(mixed.operations, "request")
        );
        lines.extend(words::labelled("Switches", &text));
    } else if !mixed.complete && seen {
        let text = "requests that met two settings may be among these: records of single calls had to be given up.";
        lines.extend(words::labelled("Switches", text));
    }
    for link in status.links.iter().filter(|link| link.sent != link.received) {
        let text = format!(
            "{} > {}: {} sent, {} arrived",
            shown(&link.from),
            shown(&link.to),
            number::whole(link.sent),
            number::whole(link.received)
        );
        lines.extend(words::labelled("link", &text));
    }
    lines
}

fn offer(screen: &mut Screen, status: &Status, program: &str) {
    let mut rows = status.services.iter();
    let broken = rows.any(|row| row.fault != "none" || row.client_fault.is_some());
    let (switch, caption) = if broken {
        ("heal", "repair it")
    } else {
        ("fail", "break it")
    };
    let is_set = offers(
        screen,
        program,
        &status.command,
        &["call", switch],
        &[&["1 request", caption]],
    );
    let again = if is_set { "status" } else { &status.command };
    screen.lines(command::wrapped("repeat  ", program, again));
}
