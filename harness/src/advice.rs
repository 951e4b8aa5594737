//! What to change: a set of edits of a scenario, each of which can be predicted and run alike.
//!
//! Here: which edits there are, what they are called, and the scenario that each makes of another. Not here: how a row looks
//! (`render`), and who runs it (`commands/prove.rs`). Start at [`suggestions`].

use crate::{
    plan,
    report::{self, ChangeKind, Scope},
    scenario::{CUSTOM, Chain, Scenario, SidecarKind},
};
use chassis::policy::{Budget, Policy};
use std::time::Duration;

/// Retries per hundred calls that the suggested budget lets each layer make.
const PERCENT: u32 = 20;
/// The same as a policy: no reserve, so that the share alone decides.
const BUDGET: Budget = Budget::Window {
    ratio_milli: PERCENT * 10,
    min_per_second: 0,
    ttl: Duration::from_secs(10),
};
/// Requests, one after another, that a run of the budget has at least: it saves up before it lets anything through.
const BUDGET_REQUESTS: u64 = 100;

/// One edit of a scenario and what it leaves.
#[derive(Debug, Clone, PartialEq)]
pub struct Suggestion {
    /// The edit.
    pub edit: Edit,
    /// What it leaves at the bottom for one request, worst case.
    pub bottom: model::Count,
    /// What a budget leaves under steady traffic; `None` for what is no budget.
    pub ceiling: Option<f64>,
    /// Whether calls are counted where they are sent, since none of them arrives without the edit.
    pub is_sent: bool,
}

/// The edits that lower the number of calls at the bottom, the biggest cut first, among equal ones the fewest edits. Where none
/// can arrive, calls are those that are sent there.
///
/// A budget counts by its ceiling: it saves up in quiet times, so one request alone may still cause what it caused before.
pub fn suggestions(scenario: &Scenario) -> Vec<Suggestion> {
    let topology = plan::of(scenario);
    let is_sent = model::is_only_sent(&topology);
    let calls = if is_sent { model::worst_sent } else { model::worst };
    let now = calls(&topology);
    let mut found: Vec<Suggestion> = edits(&scenario.chain, topology.is_limited())
        .into_iter()
        .map(|edit| {
            let (bottom, ceiling) = match edit.what {
                What::Budget => (now, Some(model::ceiling(&topology, PERCENT.into()).bottom)),
                _ => (calls(&plan::of(&edit.apply(scenario))), None),
            };
            Suggestion {
                edit,
                bottom,
                ceiling,
                is_sent,
            }
        })
        .collect();
    found.retain(|suggestion| match suggestion.ceiling {
        Some(ceiling) => now.as_f64().is_none_or(|now| ceiling < now),
        None => suggestion.bottom < now,
    });
    // Counted once for each: a comparison is made many times.
    let mut counted: Vec<(usize, Suggestion)> = found
        .into_iter()
        .map(|suggestion| (suggestion.edit.places(&scenario.chain).number(), suggestion))
        .collect();
    counted.sort_by(|(one_edits, one), (other_edits, other)| {
        one.left()
            .total_cmp(&other.left())
            .then(one.bottom.cmp(&other.bottom))
            .then(one_edits.cmp(other_edits))
    });
    counted.into_iter().map(|(_, suggestion)| suggestion).collect()
}

/// The edits that a policy as it is is compared with: the best one of a single place, from what was suggested, and the best
/// single owner, where it is another one.
pub fn rivals(scenario: &Scenario, suggestions: &[Suggestion]) -> Vec<Edit> {
    let mut single = suggestions.iter().filter(|row| row.ceiling.is_none());
    let single = single.find(|row| row.edit.scope(&scenario.chain) == Scope::OneEdit);
    let mut rivals: Vec<Edit> = single.map(|row| row.edit.clone()).into_iter().collect();
    let owner = best_owner(scenario, suggestions);
    rivals.extend(owner.filter(|owner| rivals.iter().all(|rival| rival.layers != owner.layers)));
    rivals
}

/// The single owner of all retries that leaves least, from what was suggested; the topmost where no owner lowers the number,
/// and `None` where one layer retries at most.
fn best_owner(scenario: &Scenario, suggestions: &[Suggestion]) -> Option<Edit> {
    let left = |edit: &Edit| {
        let same = |row: &&Suggestion| row.ceiling.is_none() && row.edit.layers == edit.layers;
        suggestions
            .iter()
            .find(same)
            .map_or(model::Count::Beyond, |row| row.bottom)
    };
    edits_of_owners(&retrying(&scenario.chain)).into_iter().min_by_key(left)
}

impl Suggestion {
    /// The same as a row of a prediction.
    pub fn told(&self, scenario: &Scenario) -> report::Change {
        let chain = &scenario.chain;
        let edited = self.edit.apply(scenario);
        report::Change {
            change: self.edit.name(chain),
            kind: self.edit.kind(),
            at: self.edit.at(chain).map(str::to_owned),
            scope: self.edit.scope(chain),
            edits: self.edit.edits(chain),
            bottom: self.bottom.into(),
            ceiling: self.ceiling,
            gives_up: self.edit.gives_up(chain),
            // Real Envoys do not know every policy.
            command: edited
                .check_envoys()
                .map_or_else(|_| String::new(), |()| edited.repeat("run")),
        }
    }

    /// What is left, as a number that ceilings and counts have in common.
    fn left(&self) -> f64 {
        self.ceiling.or(self.bottom.as_f64()).unwrap_or(f64::INFINITY)
    }
}

/// One edit of the policy of a chain. It fits the chain that it was made for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    what: What,
    /// What is different afterwards, from the top. Never empty.
    layers: Vec<Layer>,
}

/// A layer that makes more than one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Layer {
    /// Who calls: 0 is the client, the others are the services from the top.
    caller: usize,
    /// Whether it is the proxy under that caller, and not its code.
    is_proxy: bool,
}

/// What an edit is called by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// One layer makes one attempt.
    Off(Layer),
    /// All proxies do.
    ProxiesOff,
    /// Everybody does but one.
    Owner(Owner),
    /// The code of all services does.
    CodeOff,
    /// Every layer that retries gets a budget.
    Budget,
}

/// Who keeps its attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// One layer.
    Layer(Layer),
    /// The code of this caller and the proxy under it.
    Both(usize),
}

impl Owner {
    fn keeps(self, layer: Layer) -> bool {
        match self {
            Self::Layer(owner) => layer == owner,
            Self::Both(caller) => layer.caller == caller,
        }
    }
}

/// Every edit there is for a chain. Two names for one edit are one: the first is the one that says what is edited.
///
/// A chain that is limited, in which a layer has a throttle or a budget already is offered no other budget: it keeps the limit that somebody
/// chose, and a product of different limits is no ceiling that anybody could state. Hedges are retries like all others: a
/// budget pays for each attempt behind the first.
fn edits(chain: &Chain, is_limited: bool) -> Vec<Edit> {
    let all = retrying(chain);
    let part = |is: fn(&Layer) -> bool| all.iter().copied().filter(is).collect::<Vec<_>>();
    let mut edits: Vec<Edit> = all
        .iter()
        .map(|layer| Edit {
            what: What::Off(*layer),
            layers: vec![*layer],
        })
        .collect();
    edits.push(Edit {
        what: What::ProxiesOff,
        layers: part(|layer| layer.is_proxy),
    });
    edits.extend(edits_of_owners(&all));
    edits.push(Edit {
        what: What::CodeOff,
        layers: part(|layer| !layer.is_proxy && layer.caller > 0),
    });
    let mut known: Vec<Edit> = Vec::new();
    for edit in edits {
        if !edit.layers.is_empty() && known.iter().all(|known| known.layers != edit.layers) {
            known.push(edit);
        }
    }
    if !all.is_empty() && !is_limited {
        known.push(Edit {
            what: What::Budget,
            layers: all,
        });
    }
    known
}

/// Each candidate for a single owner: a layer, and the code and the proxy of one caller together.
fn edits_of_owners(all: &[Layer]) -> Vec<Edit> {
    let single = all.iter().map(|layer| Owner::Layer(*layer));
    let both = all.windows(2).filter(|pair| pair[0].caller == pair[1].caller);
    let both = both.map(|pair| Owner::Both(pair[0].caller));
    let edit = |owner: Owner| Edit {
        what: What::Owner(owner),
        layers: all.iter().copied().filter(|layer| !owner.keeps(*layer)).collect(),
    };
    let owners = single.chain(both).map(edit);
    owners.filter(|edit| !edit.layers.is_empty()).collect()
}

/// The layers that make more than one attempt, from the top, the code of a caller before the proxy under it.
fn retrying(chain: &Chain) -> Vec<Layer> {
    let layers = chain.callers().enumerate().flat_map(|(caller, (_, how))| {
        let code = (how.retry.attempts > 1).then_some(Layer {
            caller,
            is_proxy: false,
        });
        let proxy = how.has_proxy().then_some(Layer { caller, is_proxy: true });
        code.into_iter().chain(proxy)
    });
    layers.collect()
}

impl Edit {
    /// The scenario with this edit. A budget comes with requests one after another, and enough of them: alone, and all at
    /// once, they show nothing of it.
    pub fn apply(&self, scenario: &Scenario) -> Scenario {
        let mut edited = scenario.clone();
        CUSTOM.clone_into(&mut edited.name);
        edited.about.clear();
        if self.what == What::Budget {
            for (_, caller) in edited.chain.callers_mut() {
                // Who makes one attempt has no use for it, and what all have is one key.
                caller.retry.budget = Some(BUDGET);
                if caller.has_proxy() {
                    caller.proxy.budget = Some(BUDGET);
                }
            }
            edited.load.concurrency = 1;
            edited.load.rate = None;
            edited.load.requests = edited.load.requests.max(BUDGET_REQUESTS);
            return edited;
        }
        for (place, (_, caller)) in edited.chain.callers_mut().enumerate() {
            for layer in self.layers.iter().filter(|layer| layer.caller == place) {
                if layer.is_proxy {
                    caller.proxy = Policy::default();
                } else {
                    caller.retry.attempts = 1;
                }
            }
        }
        if !edited.chain.has_proxies() {
            edited.chain.sidecar = SidecarKind::default();
        }
        edited
    }

    /// What it is called: `retries off at pricing`.
    pub fn name(&self, chain: &Chain) -> String {
        let name = |caller: usize| name(chain, caller);
        let all = retrying(chain);
        let has_proxy = |caller: usize| all.contains(&Layer { caller, is_proxy: true });
        let has_proxies = all.iter().any(|layer| layer.is_proxy);
        match self.what {
            What::Off(Layer { caller, is_proxy: true }) => format!("proxy retries off at {}", name(caller)),
            What::Off(Layer { caller, .. }) if has_proxies => format!("code retries off at {}", name(caller)),
            What::Off(Layer { caller, .. }) => format!("retries off at {}", name(caller)),
            What::ProxiesOff => "proxy retries off, whole mesh".to_owned(),
            What::CodeOff if has_proxies => "code retries off in all services".to_owned(),
            // A client that retries too would be a single owner then.
            What::CodeOff => "retries off everywhere".to_owned(),
            What::Owner(Owner::Both(caller)) => format!("retry at {} only, code and proxy", name(caller)),
            What::Owner(Owner::Layer(Layer { caller, is_proxy: true })) => {
                format!("retry at {} only, in its proxy", name(caller))
            }
            What::Owner(Owner::Layer(Layer { caller, .. })) if has_proxy(caller) => {
                format!("retry at {} only, in its code", name(caller))
            }
            What::Owner(Owner::Layer(Layer { caller, .. })) => format!("retry at {} only", name(caller)),
            What::Budget => match self.layers.as_slice() {
                [one] => format!("{PERCENT} % budget at {}", name(one.caller)),
                layers => format!("{PERCENT} % budget, {} layers", layers.len()),
            },
        }
    }

    fn kind(&self) -> ChangeKind {
        match self.what {
            What::Off(Layer { is_proxy: true, .. }) => ChangeKind::ProxyOff,
            What::Off(_) => ChangeKind::CodeOff,
            What::ProxiesOff => ChangeKind::AllProxiesOff,
            What::CodeOff => ChangeKind::AllCodeOff,
            What::Owner(Owner::Both(_)) => ChangeKind::OwnerWithProxy,
            What::Owner(Owner::Layer(Layer { is_proxy: true, .. })) => ChangeKind::OwnerProxy,
            What::Owner(Owner::Layer(_)) => ChangeKind::OwnerCode,
            What::Budget => ChangeKind::Budget,
        }
    }

    /// The one caller that it is about.
    fn at<'a>(&self, chain: &'a Chain) -> Option<&'a str> {
        match (self.what, self.layers.as_slice()) {
            (What::Off(layer) | What::Owner(Owner::Layer(layer)), _) | (What::Budget, &[layer]) => {
                Some(name(chain, layer.caller))
            }
            (What::Owner(Owner::Both(caller)), _) => Some(name(chain, caller)),
            _ => None,
        }
    }

    /// What is edited for it: `2 services, 1 mesh setting`.
    pub fn edits(&self, chain: &Chain) -> String {
        let Places {
            clients,
            services,
            routes,
            mesh_settings,
        } = self.places(chain);
        let kinds = [
            (clients, "client", "clients"),
            (services, "service", "services"),
            (routes, "route", "routes"),
            (mesh_settings, "mesh setting", "mesh settings"),
        ];
        let words = kinds.into_iter().filter(|(count, ..)| *count > 0);
        let words = words.map(|(count, one, many)| format!("{count} {}", if count == 1 { one } else { many }));
        words.collect::<Vec<_>>().join(", ")
    }

    /// Whether one place is edited.
    pub fn scope(&self, chain: &Chain) -> Scope {
        if self.places(chain).number() == 1 {
            Scope::OneEdit
        } else {
            Scope::SeveralEdits
        }
    }

    /// Whether it is a budget, which binds under steady traffic only.
    pub fn is_budget(&self) -> bool {
        self.what == What::Budget
    }

    fn places(&self, chain: &Chain) -> Places {
        let proxies = self.layers.iter().filter(|layer| layer.is_proxy).count();
        let clients = self
            .layers
            .iter()
            .filter(|layer| !layer.is_proxy && layer.caller == 0)
            .count();
        let all = retrying(chain).iter().filter(|layer| layer.is_proxy).count();
        // A mesh switches retries off for all of its proxies in one place; a budget is set for each route.
        let is_whole_mesh = proxies > 1 && proxies == all && self.what != What::Budget;
        Places {
            clients,
            services: self.layers.len() - proxies - clients,
            routes: if is_whole_mesh { 0 } else { proxies },
            mesh_settings: usize::from(is_whole_mesh),
        }
    }

    /// What it gives up, told as what becomes of failures afterwards: who is tried once only, or else who retries from further
    /// up, or how much less a call is tried.
    fn gives_up(&self, chain: &Chain) -> String {
        if self.what == What::Budget {
            return format!("{PERCENT} % retries at most");
        }
        let kept: Vec<Layer> = retrying(chain)
            .into_iter()
            .filter(|layer| !self.layers.contains(layer))
            .collect();
        if kept.is_empty() {
            return "nothing is tried again".to_owned();
        }
        let (mut once, mut moved, mut fewer) = (Vec::new(), Vec::new(), Vec::new());
        let mut callers: Vec<usize> = self.layers.iter().map(|layer| layer.caller).collect();
        callers.dedup();
        for caller in callers {
            let callee = chain.services[caller].name.as_str();
            if kept.iter().any(|kept| kept.caller == caller) {
                fewer.push(caller);
            } else if let Some(above) = kept.iter().rfind(|kept| kept.caller < caller) {
                moved.push((callee, name(chain, above.caller)));
            } else {
                once.push(callee);
            }
        }
        match (once.as_slice(), moved.as_slice()) {
            ([callee], _) => format!("{callee} is tried once"),
            ([first, .., last], _) if once.len() > 2 => format!("{first} to {last}: once"),
            ([first, .., last], _) => format!("{first}, {last}: once"),
            ([], [(callee, above)]) => format!("{above} retries {callee}"),
            ([], [(_, above), others @ ..]) if others.iter().all(|(_, other)| other == above) => {
                format!("{above} retries all below")
            }
            ([], [_, ..]) => "callers above retry".to_owned(),
            ([], []) => self.fewer(chain, &fewer),
        }
    }

    /// `3 tries of a call, not 9`, where code and proxy multiply at these callers and one of them goes on.
    fn fewer(&self, chain: &Chain, callers: &[usize]) -> String {
        let tries = |caller: usize| {
            let (_, how) = chain.callers().nth(caller).expect("a caller of this chain");
            let layer = |is_proxy, attempts: u32| {
                let is_off = self.layers.contains(&Layer { caller, is_proxy });
                (u64::from(attempts), if is_off { 1 } else { u64::from(attempts) })
            };
            let (code, proxy) = (layer(false, how.retry.attempts), layer(true, how.proxy.attempts));
            (code.0 * proxy.0, code.1 * proxy.1)
        };
        let mut all = callers.iter().map(|caller| tries(*caller));
        match all.next() {
            Some((before, after)) if all.all(|other| other == (before, after)) => {
                format!("{after} tries of a call, not {before}")
            }
            _ => "fewer tries of a call".to_owned(),
        }
    }
}

/// How many places are edited, by their kinds.
struct Places {
    clients: usize,
    services: usize,
    routes: usize,
    mesh_settings: usize,
}

impl Places {
    fn number(&self) -> usize {
        self.clients + self.services + self.routes + self.mesh_settings
    }
}

fn name(chain: &Chain, caller: usize) -> &str {
    chain.callers().nth(caller).map_or("", |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Overrides;
    use proptest::prelude::*;

    fn load(source: &str, change: impl FnOnce(&mut Overrides)) -> Scenario {
        let mut overrides = Overrides::default();
        change(&mut overrides);
        Scenario::load(Some(source), &overrides).unwrap()
    }

    /// Name, what is edited and what is left, of each suggestion.
    fn rows(scenario: &Scenario) -> Vec<(String, String, String)> {
        let told = suggestions(scenario).into_iter().map(|row| row.told(scenario));
        told.map(|row| {
            let left = row.ceiling.map(|ceiling| format!("{ceiling:.3}"));
            let left = left.unwrap_or_else(|| match row.bottom {
                report::Count::Of(count) => count.to_string(),
                report::Count::Beyond => "beyond".to_owned(),
            });
            (row.change, row.edits, left)
        })
        .collect()
    }

    fn row(change: &str, edits: &str, left: &str) -> (String, String, String) {
        (change.to_owned(), edits.to_owned(), left.to_owned())
    }

    #[test]
    fn the_headline_has_its_set_with_the_biggest_cut_first() {
        let scenario = load("per-hop", |_| ());
        assert_eq!(
            rows(&scenario),
            [
                row("retries off everywhere", "3 services", "1"),
                row("20 % budget, 3 layers", "3 services", "1.728"),
                row("retry at frontend only", "2 services", "3"),
                row("retry at checkout only", "2 services", "3"),
                row("retry at pricing only", "2 services", "3"),
                row("retries off at frontend", "1 service", "9"),
                row("retries off at checkout", "1 service", "9"),
                row("retries off at pricing", "1 service", "9"),
            ]
        );
        assert_eq!(
            gives_up(&scenario).map(|(_, text)| text),
            [
                "nothing is tried again",
                "20 % retries at most",
                "frontend retries all below",
                "checkout is tried once",
                "checkout, pricing: once",
                "checkout is tried once",
                "frontend retries pricing",
                "checkout retries inventory",
            ]
        );
    }

    /// Name of each suggestion and what it gives up.
    fn gives_up<const ROWS: usize>(scenario: &Scenario) -> [(String, String); ROWS] {
        let rows = suggestions(scenario).into_iter().map(|row| row.told(scenario));
        let rows: Vec<_> = rows.map(|row| (row.change, row.gives_up)).collect();
        rows.try_into().unwrap()
    }

    #[test]
    fn what_is_given_up_names_who_is_tried_less_or_from_further_up() {
        let told: [_; 15] = gives_up(&load("client x2 > web x3*3 > api x3*2 > db down", |_| ()));
        let text = |change: &str| told.iter().find(|(name, _)| name == change).unwrap().1.as_str();
        for (change, text_of_it) in [
            ("code retries off at client", "web is tried once"),
            ("code retries off at web", "3 tries of a call, not 9"),
            ("proxy retries off at api", "3 tries of a call, not 6"),
            ("proxy retries off, whole mesh", "fewer tries of a call"),
            ("retry at client only", "client retries all below"),
            ("retry at api only, in its code", "web, api: once"),
        ] {
            assert_eq!(text(change), text_of_it, "{change}");
        }
        let told: [_; 4] = gives_up(&load("a > b x2 > c > d x2 > e down", |_| ()));
        assert_eq!(told[2], ("retries off at b".to_owned(), "c is tried once".to_owned()));
        // Not d: whoever calls d has never tried it twice.
        assert_eq!(told[3], ("retries off at d".to_owned(), "b retries e".to_owned()));
    }

    #[test]
    fn code_and_proxies_are_edited_apart_and_a_whole_mesh_in_one_place() {
        let scenario = load("client x2 > web x3*3 > api x3*2 > db down", |_| ());
        let all = rows(&scenario);
        for expected in [
            row("20 % budget, 5 layers", "1 client, 2 services, 2 routes", "2.488"),
            row("retry at client only", "2 services, 1 mesh setting", "2"),
            row("retry at api only, in its proxy", "1 client, 2 services, 1 route", "2"),
            row(
                "retry at api only, in its code",
                "1 client, 1 service, 1 mesh setting",
                "3",
            ),
            row("retry at web only, code and proxy", "1 client, 1 service, 1 route", "9"),
            row("code retries off in all services", "2 services", "12"),
            row("proxy retries off, whole mesh", "1 mesh setting", "18"),
            row("code retries off at web", "1 service", "36"),
            row("proxy retries off at api", "1 route", "54"),
            row("code retries off at client", "1 client", "54"),
        ] {
            assert!(all.contains(&expected), "{expected:?} in {all:#?}");
        }
        let is_one = |name: &str| {
            let told = suggestions(&scenario).into_iter().map(|row| row.told(&scenario));
            let found = told.into_iter().find(|row| row.change == name);
            found.map(|row| row.scope == Scope::OneEdit)
        };
        assert_eq!(is_one("proxy retries off, whole mesh"), Some(true));
        assert_eq!(is_one("code retries off in all services"), Some(false));
    }

    #[test]
    fn two_names_of_one_edit_are_one_row_and_fewer_edits_come_first() {
        assert_eq!(
            rows(&load("web x3 > api x4 > db down", |_| ())),
            [
                row("retries off everywhere", "2 services", "1"),
                row("20 % budget, 2 layers", "2 services", "1.440"),
                row("retries off at api", "1 service", "3"),
                row("retries off at web", "1 service", "4"),
            ]
        );
        // x9 against x3 x3: both leave 9, and one edit is less than two.
        let three = rows(&load("web x9 > api x3 > orders x3 > db down", |_| ()));
        let nine: Vec<_> = three
            .iter()
            .filter(|(.., left)| left == "9")
            .map(|(name, ..)| name)
            .collect();
        assert_eq!(nine, ["retries off at web", "retry at web only"]);
        assert_eq!(
            rows(&load("web x3 > db down", |_| ())),
            [
                row("retries off at web", "1 service", "1"),
                row("20 % budget at web", "1 service", "1.200"),
            ]
        );
    }

    #[test]
    fn what_does_not_lower_the_number_is_left_out() {
        assert_eq!(rows(&load("web x3 > api x3 > db", |_| ())), []);
        // pricing translates: whoever retries above it changes nothing.
        let translated = load("per-hop", |flags| {
            flags.set = vec!["services.pricing.on_failure=FAILED_PRECONDITION".to_owned()];
        });
        let names: Vec<_> = rows(&translated).into_iter().map(|(name, ..)| name).collect();
        assert!(names.contains(&"retries off at pricing".to_owned()), "{names:?}");
        assert!(!names.contains(&"retries off at frontend".to_owned()), "{names:?}");
        assert!(!names.contains(&"retry at pricing only".to_owned()), "{names:?}");
        let limited = load("budget-window", |_| ());
        assert!(rows(&limited).iter().all(|(name, ..)| !name.contains("budget")));
    }

    #[test]
    fn a_closed_port_counts_what_is_sent_there() {
        let refused = rows(&load("web x3 > api x3 > db refuse", |_| ()));
        assert!(
            refused.contains(&row("retries off at api", "1 service", "3")),
            "{refused:?}"
        );
        assert!(refused.contains(&row("20 % budget, 2 layers", "2 services", "1.440")));
    }

    #[test]
    fn whether_calls_are_counted_where_they_are_sent_is_one_decision_for_all_edits() {
        let sent = |line: &str, change: fn(&mut Overrides)| {
            let scenario = load(line, change);
            let found = suggestions(&scenario);
            assert!(found.iter().all(|row| row.is_sent == found[0].is_sent), "{found:?}");
            (found.first().map(|row| row.is_sent), rows(&scenario).len())
        };
        assert_eq!(sent("web x3 > api x3 > db down", |_| ()), (Some(false), 4));
        assert_eq!(sent("web x3 > api x3 > db refuse", |_| ()), (Some(true), 4));
        // Who may leave before it is refused is counted as everybody is.
        let timed = |flags: &mut Overrides| {
            flags.set = vec!["retry.backoff.initial=\"20ms\"".to_owned()];
            flags.deadline = Some(crate::scenario::OrNone::Is(Duration::from_millis(100)));
        };
        assert_eq!(sent("web x3 > api x3 > db refuse", timed), (Some(true), 4));
        let side = |flags: &mut Overrides| {
            flags.faults = vec![(None, "fail:side=client@api".parse().unwrap())];
        };
        assert_eq!(sent("web x3 > api x3 > db", side), (Some(true), 4));
    }

    #[test]
    fn calls_of_a_service_are_no_retries_and_stay() {
        let fan = |fan_out: &str| {
            let set = vec![
                "services.web.calls=2".to_owned(),
                format!("services.web.fan_out=\"{fan_out}\""),
            ];
            rows(&load("web x3 > api x4 > db down", |flags| flags.set = set))
        };
        assert_eq!(
            fan("parallel"),
            [
                row("retries off everywhere", "2 services", "2"),
                row("20 % budget, 2 layers", "2 services", "2.880"),
                row("retries off at api", "1 service", "6"),
                row("retries off at web", "1 service", "8"),
            ]
        );
        // The first call that fails is the last one.
        assert_eq!(
            fan("sequence"),
            [
                row("retries off everywhere", "2 services", "1"),
                row("20 % budget, 2 layers", "2 services", "1.440"),
                row("retries off at api", "1 service", "3"),
                row("retries off at web", "1 service", "4"),
            ]
        );
    }

    #[test]
    fn twelve_links_of_eleven_attempts_everywhere_are_exact() {
        let deep = load("per-hop", |flags| {
            flags.depth = Some(12);
            flags.attempts = Some(11);
            flags.sidecar_attempts = Some(11);
            flags.attempts_at = vec![("client".to_owned(), 11)];
        });
        let whole = 11_u128.pow(25);
        assert_eq!(model::worst(&plan::of(&deep)), model::Count::Of(whole));
        let all = suggestions(&deep);
        let off: Vec<_> = all.iter().filter(|row| matches!(row.edit.what, What::Off(_))).collect();
        assert_eq!(off.len(), 25);
        assert!(off.iter().all(|row| row.bottom == model::Count::Of(whole / 11)));
        let best = all
            .iter()
            .find(|row| row.edit.scope(&deep.chain) == Scope::OneEdit)
            .unwrap();
        assert_eq!(best.bottom, model::Count::Of(11_u128.pow(13)), "the whole mesh");
    }

    /// A chain line of these attempts of code and proxy, the client's first.
    fn line(tries: &[(u32, u32)]) -> String {
        let hop = |(place, (code, proxy)): (usize, &(u32, u32))| {
            let name = if place == 0 {
                "client".to_owned()
            } else {
                format!("s{place}")
            };
            format!("{name} x{code}*{proxy} > ")
        };
        tries.iter().enumerate().map(hop).collect::<String>() + "db down"
    }

    proptest! {
        #[test]
        fn the_best_single_edit_is_the_best_of_all(
            tries in prop::collection::vec((1..=9_u32, 1..=9_u32), 2..=12)
        ) {
            let scenario = load(&line(&tries), |_| ());
            // By hand: the product without one factor, or without all proxies where there are several.
            let product = |factors: &mut dyn Iterator<Item = u32>| factors.map(u128::from).product::<u128>();
            let factors: Vec<u32> = tries.iter().flat_map(|(code, proxy)| [*code, *proxy]).collect();
            let now = product(&mut factors.iter().copied());
            let without = factors.iter().filter(|factor| **factor > 1).map(|factor| now / u128::from(*factor));
            let code = product(&mut tries.iter().map(|(code, _)| *code));
            let has_proxies = tries.iter().any(|(_, proxy)| *proxy > 1);
            let best = without.chain(has_proxies.then_some(code)).min();
            let found = suggestions(&scenario);
            let first = found.iter().find(|row| row.edit.scope(&scenario.chain) == Scope::OneEdit);
            prop_assert_eq!(first.map(|row| row.bottom), best.map(model::Count::Of));
        }

        #[test]
        fn an_edit_is_repeated_by_its_command(
            tries in prop::collection::vec((1..=3_u32, 1..=3_u32), 2..=6)
        ) {
            let scenario = load(&line(&tries), |_| ());
            for row in suggestions(&scenario) {
                let edited = row.edit.apply(&scenario);
                let command = edited.repeat("run");
                // Every other piece stands in quotes: the line, then at most one key.
                let mut quoted = command.split('\'').skip(1).step_by(2);
                let source = quoted.next().unwrap();
                let overrides = Overrides {
                    set: quoted.map(str::to_owned).collect(),
                    requests: command.rsplit_once(" -n ").map(|(_, requests)| requests.parse().unwrap()),
                    ..Overrides::default()
                };
                prop_assert_eq!(Scenario::load(Some(source), &overrides).unwrap(), edited);
                prop_assert!(row.edit.is_budget() || row.bottom < model::worst(&plan::of(&scenario)));
            }
        }
    }
}
