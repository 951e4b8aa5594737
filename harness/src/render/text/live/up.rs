//! The screen of a chain that has just come up.

use super::super::{
    Style, command, next,
    picture::{self, Node},
    words::{self, LABEL, Screen, WIDTH, shown},
};

/// What `up` says once all services are up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    /// The chain line in quotes.
    pub chain: String,
    /// The services, the top one first.
    pub services: Vec<StartedService>,
    /// What `--attach` takes from another terminal, where the ports are not the usual ones.
    pub attach: Option<String>,
    /// Where the traces go.
    pub otlp: Option<String>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartedService {
    /// Its name in the chain line.
    pub name: String,
    /// Where it is called.
    pub address: String,
    /// Where it is asked.
    pub control: String,
}

/// The methods of the chain, the deepest first: a chain of n links enters at the nth.
const METHODS: [&str; 4] = [
    "shop.v1.Inventory/GetStock",
    "shop.v1.Pricing/GetPrice",
    "shop.v1.Checkout/GetQuote",
    "shop.v1.Frontend/GetOffer",
];
/// What is typed in another terminal.
const COMMANDS: [&str; 5] = ["call", "fail", "retry 2", "heal", "status"];

/// A chain is up: where, and what to type next.
pub fn up(started: &Started, program: &str, style: Style) -> String {
    let mut screen = Screen::default();
    screen.headline(&headline(started), style);
    screen.gap();
    screen.lines(chain(started));
    screen.gap();
    screen.lines(places(&started.services));
    screen.gap();
    screen.line("In another terminal");
    if let Some(attach) = &started.attach {
        screen.lines(command::export("RETRYSCOPE_ATTACH", attach));
    }
    let bottom = started.services.last().map_or("the bottom", |row| row.name.as_str());
    let bottom = words::name(bottom, 20);
    let fails = format!("{bottom} answers UNAVAILABLE");
    let captions = [
        [
            "1 request, and every call it causes",
            &fails,
            "every caller makes 2 attempts",
            "everything works again",
            "what has arrived so far",
        ],
        ["1 request", "it breaks", "2 attempts", "it works", "what arrived"],
    ];
    // What is down already is not broken by `fail`.
    let is_down = picture::bottom_fault(started.chain.trim_matches('\'')).is_some();
    let is_offered = |place: &usize| !(is_down && COMMANDS[*place] == "fail");
    let places: Vec<usize> = (0..COMMANDS.len()).filter(is_offered).collect();
    let commands: Vec<&str> = places.iter().map(|place| COMMANDS[*place]).collect();
    let captions = captions.map(|captions| places.iter().map(|place| captions[*place]).collect::<Vec<_>>());
    let captions = captions.each_ref().map(Vec::as_slice);
    next::listed(&mut screen, program, &commands, &captions);
    screen.gap();
    if let Some(method) = started
        .services
        .len()
        .checked_sub(1)
        .and_then(|links| METHODS.get(links))
        && let Some(entry) = started.services.first()
    {
        let words = format!(
            "-plaintext -d '{{\"item\":\"teapot\"}}' {} {method}",
            command::word(&entry.address)
        );
        screen.lines(command::wrapped(
            &format!("{:<LABEL$}", "any client"),
            "grpcurl",
            &words,
        ));
    }
    if let Some(otlp) = &started.otlp {
        screen.lines(words::labelled("traces go to", &shown(otlp)));
    }
    screen.gap();
    screen.line("Ctrl-C ends it.");
    screen.finish()
}

fn headline(started: &Started) -> String {
    let count = started.services.len();
    match (started.services.first(), started.services.last()) {
        (Some(first), Some(last)) if count > 1 => {
            let (first, last) = (shown(&first.name), shown(&last.name));
            format!("{count} services are up, from {first} down to {last}.")
        }
        _ => format!("{count} services are up."),
    }
}

/// The chain with its factors; a fault of the bottom service stands under it.
fn chain(started: &Started) -> Vec<String> {
    let line = started.chain.trim_matches('\'');
    let declared = picture::declared(line);
    let attempts = |caller: &str| {
        let found = declared.iter().find(|(name, _)| name == caller);
        found.map_or(1, |(_, attempts)| *attempts)
    };
    let client = line.split_whitespace().next().unwrap_or("client");
    let mut nodes = vec![Node {
        name: client.to_owned(),
        under: String::new(),
    }];
    let arrow = |caller: &str| picture::layers(attempts(caller), None, attempts(&format!("{caller}-proxy")), None);
    let mut arrows = vec![arrow(client)];
    for row in &started.services {
        nodes.push(Node {
            name: row.name.clone(),
            under: String::new(),
        });
        arrows.push(arrow(&row.name));
    }
    if let (Some(fault), Some(last)) = (picture::bottom_fault(line), nodes.last_mut()) {
        last.under = words::name(fault, 40);
    }
    picture::chain(&nodes, &arrows)
}

/// Where each service is called and asked.
fn places(services: &[StartedService]) -> Vec<String> {
    const ASK: &str = "ask it at (control)";
    let column = |of: fn(&StartedService) -> &str, least: usize| {
        let longest = services.iter().map(|row| shown(of(row)).len()).max();
        longest.unwrap_or(0).max(least).min((WIDTH - 16) / 2)
    };
    let (call, ask) = (column(|row| &row.address, 10), column(|row| &row.control, ASK.len()));
    let names = picture::name_columns(
        services.iter().map(|row| row.name.as_str()),
        WIDTH.saturating_sub(call + 3 + ask),
    );
    let head = format!("{:<names$}{:<call$}   {ASK}", "service", "call it at");
    let rows = services.iter().map(|row| {
        format!(
            "{:<names$}{:<call$}   {}",
            words::name(&row.name, names.saturating_sub(1)),
            words::name(&row.address, call),
            words::name(&row.control, ask)
        )
    });
    std::iter::once(head).chain(rows).collect()
}
