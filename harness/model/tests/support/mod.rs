//! What the tests hold the model against: random chains, and a walk of the tree that knows none of the model's shortcuts.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part")]

use model::fault::{self, ClientFault, Cut, Kind, When};
use model::{
    Caller, Code, Count, Draws, FanOut, Fault, Layer, Load, PassesOn, Policy, Predicted, Prediction, RetryOn, Service,
    Topology, predict,
};
use std::collections::{BTreeMap, HashMap};

pub const NOT_FOUND: Code = Code(5);
pub const FAILED_PRECONDITION: Code = Code(9);
pub const REFUSE: Fault = Fault::of(Kind::Refuse);

/// A failing answer, and which arrivals get it, in one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fail {
    pub code: Code,
    pub first: Option<u64>,
    pub p: Option<f64>,
    pub per_process: bool,
    pub after: bool,
}

pub fn fail(fail: Fail) -> Fault {
    let (code, after) = (fail.code, fail.after);
    Fault {
        when: When {
            first: fail.first,
            p: fail.p,
            per_process: fail.per_process,
        },
        ..Fault::of(Kind::Fail(fault::Fail {
            code,
            after,
            ..fault::Fail::DOWN
        }))
    }
}

pub const DOWN: Fail = Fail {
    code: Code::UNAVAILABLE,
    first: None,
    p: None,
    per_process: false,
    after: false,
};

/// A chain whose callers make `attempts` each, the client first; the services are s1, s2, … and work.
pub fn chain(attempts: &[u32]) -> Topology {
    let caller = |(number, attempts): (usize, &u32)| Caller {
        layer: Layer::Code,
        answers_only: false,
        name: if number == 0 {
            "client".to_owned()
        } else {
            format!("s{number}")
        },
        attempts: *attempts,
        retry_on: RetryOn::Codes(vec![Code::UNAVAILABLE]),
        policy: Policy::default(),
        client_fault: None,
        raw_codes: false,
    };
    let service = |number| Service {
        name: format!("s{}", number + 1),
        fault: Fault::NONE,
        on_failure: None,
        passes_on: PassesOn::Rest,
        detached: false,
        calls: 1,
        fan_out: FanOut::Sequence,
    };
    Topology {
        callers: attempts.iter().enumerate().map(caller).collect(),
        services: (0..attempts.len()).map(service).collect(),
        load: Load {
            requests: 1,
            concurrency: 1,
            first_request: 1,
            seed: 27,
            deadline_us: None,
            cancel_after_us: None,
            interval_us: None,
            invalid_item: false,
        },
    }
}

/// The headline: a client with one attempt, three callers with three, and this fault at the bottom.
pub fn headline(fault: Fault) -> Topology {
    with_bottom(&[1, 3, 3, 3], fault)
}

pub fn with_bottom(attempts: &[u32], fault: Fault) -> Topology {
    let mut chain = chain(attempts);
    chain.services.last_mut().unwrap().fault = fault;
    chain
}

/// So many links between services, each caller with so many attempts of its code, each through a proxy of so many.
pub fn with_proxies(links: usize, code: u32, proxy: u32, layer: Layer, fault: Fault) -> Topology {
    let attempts: Vec<u32> = [1]
        .into_iter()
        .chain([code, proxy].into_iter().cycle().take(2 * links))
        .collect();
    let mut topology = with_bottom(&attempts, fault);
    for caller in topology.callers.iter_mut().skip(2).step_by(2) {
        caller.layer = layer;
    }
    topology
}

/// Xorshift, enough for tests.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 11) % limit
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.below(from.len() as u64)).unwrap()]
    }
}

/// What a random chain may contain.
#[derive(Clone, Copy)]
pub struct Ask {
    pub depth: u64,
    pub attempts: u64,
    pub requests: u64,
    pub chances: bool,
    pub firsts: bool,
    pub per_process: bool,
    /// So many links in a hundred have a proxy or an Envoy; if any, answers are more than a code.
    pub layers: u64,
    /// A service calls the next up to so many times, at once only where no `first` counts further down.
    pub calls: u64,
}

const CODES: [Code; 4] = [Code::UNAVAILABLE, Code(13), Code(8), Code::INVALID_ARGUMENT];

pub fn random_topology(random: &mut Random, ask: Ask) -> Topology {
    let depth = 1 + random.below(ask.depth);
    let attempts: Vec<u32> = (0..depth)
        .map(|_| u32::try_from(1 + random.below(ask.attempts)).unwrap())
        .collect();
    let mut topology = chain(&attempts);
    for caller in &mut topology.callers {
        caller.retry_on = match random.below(4) {
            0 => RetryOn::Any,
            1 => RetryOn::Codes(vec![Code::UNAVAILABLE, random.pick(&CODES)]),
            2 => RetryOn::Codes((0..random.below(3)).map(|_| random.pick(&CODES)).collect()),
            _ => RetryOn::Codes(vec![Code::UNAVAILABLE]),
        };
    }
    let last = topology.services.len() - 1;
    for (number, service) in topology.services.iter_mut().enumerate() {
        let faulty = if number == last { 90 } else { 35 };
        service.fault = if random.chance(faulty) {
            random_fault(random, ask)
        } else {
            Fault::NONE
        };
        service.on_failure = random.chance(25).then(|| random.pick(&CODES));
    }
    topology.load = Load {
        requests: 1 + random.below(ask.requests),
        concurrency: 1,
        first_request: 1,
        seed: random.next(),
        invalid_item: random.chance(10),
        ..topology.load
    };
    if ask.layers > 0 {
        for link in 0..topology.callers.len() {
            random_layer(&mut topology, link, random, ask);
        }
    }
    if ask.calls > 1 {
        random_calls(&mut topology, random, ask.calls);
        let counts = |service: &Service| service.fault.when.first.is_some();
        let lowest = topology.services.iter().rposition(counts).unwrap_or(0);
        for service in &mut topology.services[..lowest] {
            service.fan_out = FanOut::Sequence;
        }
    }
    topology
}

/// Services call the next up to so many times, one after another or at once. Proxies do not.
pub fn random_calls(topology: &mut Topology, random: &mut Random, most: u64) {
    for (service, caller) in topology.services.iter_mut().zip(&topology.callers[1..]) {
        if caller.layer == Layer::Code && random.chance(60) {
            service.calls = u32::try_from(1 + random.below(most)).unwrap();
            service.fan_out = random.pick(&[FanOut::Sequence, FanOut::Parallel]);
        }
    }
}

fn random_layer(topology: &mut Topology, link: usize, random: &mut Random, ask: Ask) {
    let caller = &mut topology.callers[link];
    if link > 0 && random.chance(ask.layers) {
        caller.layer = random.pick(&[Layer::Proxy, Layer::Envoy]);
        topology.services[link - 1].on_failure = None;
    }
    caller.answers_only = random.chance(25);
    caller.raw_codes = random.chance(15);
    caller.policy.commits_late = random.chance(30);
    caller.policy.ignores_pushback = random.chance(30);
    let fault = &mut topology.services[link].fault;
    if let Kind::Fail(told) = &mut fault.kind {
        told.headers = !told.after && random.chance(30);
        told.pushback_ms = random.chance(40).then(|| random.pick(&[-1, -1, 0, 7]));
        if random.chance(25) {
            let cuts = [
                Cut::Connection,
                Cut::GoAway,
                Cut::Stream(Code::INTERNAL),
                Cut::Stream(Code::UNAVAILABLE),
            ];
            fault.kind = Kind::Cut(random.pick(&cuts));
        }
    }
}

/// What only the room with a clock answers: calls that are tried once because they came as a retry, and faults in callers.
pub fn random_clockwork(topology: &mut Topology, random: &mut Random, ask: Ask) {
    for caller in &mut topology.callers {
        caller.policy.only_first_tries = random.chance(40);
        if random.chance(25) {
            caller.client_fault = Some(ClientFault {
                fault: fail(Fail {
                    first: (ask.firsts && random.chance(60)).then(|| random.below(5)),
                    p: ask.chances.then(|| random.pick(&[0.1, 0.5, 0.8])),
                    ..DOWN
                }),
                inside: random.chance(60),
            });
        }
    }
}

fn random_fault(random: &mut Random, ask: Ask) -> Fault {
    if random.chance(10) {
        return REFUSE;
    }
    fail(Fail {
        code: if random.chance(60) {
            Code::UNAVAILABLE
        } else {
            random.pick(&CODES)
        },
        first: (ask.firsts && random.chance(60)).then(|| {
            if random.chance(80) {
                random.below(12)
            } else {
                random.below(90)
            }
        }),
        p: (ask.chances && random.chance(60)).then(|| random.pick(&[0.0, 0.05, 0.3, 0.5, 0.9, 1.0])),
        per_process: ask.per_process && random.chance(40),
        after: random.chance(25),
    })
}

/// Everything a walk counts.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Counted {
    pub calls: Vec<u64>,
    pub sent: Vec<u64>,
    pub received: Vec<u64>,
    pub work_done: Vec<u64>,
    pub ended: BTreeMap<Code, u64>,
}

/// How an attempt ended, as its caller sees it.
#[derive(Clone, Copy)]
pub struct End {
    pub code: Code,
    pub lost: bool,
    pub begun: bool,
    pub pushback: Option<i32>,
}

impl End {
    pub fn answered(code: Code) -> Self {
        Self {
            code,
            lost: false,
            begun: false,
            pushback: None,
        }
    }

    pub fn lost(code: Code) -> Self {
        Self {
            lost: true,
            ..Self::answered(code)
        }
    }

    /// What a caller sees of a fault that does not wait for the work.
    pub fn of(kind: Kind, caller: &Caller) -> Option<Self> {
        match kind {
            Kind::Fail(fail) => Some(Self {
                begun: fail.headers,
                pushback: fail.pushback_ms,
                ..Self::answered(fail.code)
            }),
            Kind::Cut(_) if caller.layer == Layer::Envoy => Some(Self::lost(Code::UNAVAILABLE)),
            Kind::Cut(Cut::Stream(code)) => Some(Self::lost(code)),
            Kind::Cut(_) if caller.raw_codes => Some(Self::lost(Code::UNKNOWN)),
            Kind::Cut(_) => Some(Self::lost(Code::UNAVAILABLE)),
            _ => None,
        }
    }

    /// Whether this caller tries it again.
    pub fn again(self, caller: &Caller) -> bool {
        if self.code == Code::OK || (self.begun && !caller.policy.commits_late) || (self.lost && caller.answers_only) {
            return false;
        }
        if self.pushback.is_some_and(|ms| ms < 0) && !caller.policy.ignores_pushback {
            return false;
        }
        if caller.layer == Layer::Envoy && ![1, 4, 8, 13, 14].contains(&self.code.0) {
            return false;
        }
        match &caller.retry_on {
            RetryOn::Any => true,
            RetryOn::Codes(codes) => codes.contains(&self.code),
        }
    }

    /// What goes up from this caller.
    pub fn up(self, caller: &Caller) -> Self {
        match caller.layer {
            Layer::Code => Self::answered(self.code),
            Layer::Proxy | Layer::Envoy => Self { lost: false, ..self },
        }
    }
}

/// A walk of every arrival, one after another.
pub struct Walk<'a, Drawn> {
    pub topology: &'a Topology,
    pub counted: Counted,
    /// Whether a draw comes out below p: request, path, how often that came here before, p.
    pub drawn: Drawn,
    /// Arrivals before, by place: the services, then the callers with their own faults.
    pub before_in_process: Vec<u64>,
    pub before_in_request: Vec<u64>,
    pub paths: HashMap<(usize, Vec<u64>), u64>,
    /// A proxy that forwards the attempt path as it came.
    pub undeclared: Option<usize>,
}

impl<'a, Drawn: FnMut(u64, &[u64], u64, f64) -> bool> Walk<'a, Drawn> {
    pub fn new(topology: &'a Topology, drawn: Drawn) -> Self {
        let zeros = vec![0; topology.services.len()];
        let counted = Counted {
            calls: zeros.clone(),
            sent: zeros.clone(),
            received: zeros.clone(),
            work_done: zeros.clone(),
            ended: BTreeMap::new(),
        };
        Self {
            topology,
            counted,
            drawn,
            before_in_process: vec![0; 2 * zeros.len()],
            before_in_request: vec![0; 2 * zeros.len()],
            paths: HashMap::new(),
            undeclared: None,
        }
    }

    pub fn all(mut self) -> Counted {
        for request in 1..=self.topology.load.requests {
            self.request(request);
        }
        self.counted
    }

    pub fn request(&mut self, request: u64) -> Code {
        self.before_in_request.fill(0);
        self.paths.clear();
        let code = self.call(0, 1, request, &[], 0).code;
        *self.counted.ended.entry(code).or_default() += 1;
        code
    }

    /// `previous` is what `grpc-previous-rpc-attempts` said to whoever calls now, for the `number`th time.
    fn call(&mut self, link: usize, number: u64, request: u64, path: &[u64], previous: u32) -> End {
        let caller = &self.topology.callers[link];
        self.counted.calls[link] += 1;
        let place = ((number - 1) << 32) + u64::from(u32::MAX - 1);
        if let Some(failed) = self.own_fault(link, false, request, path, place) {
            return failed.up(caller);
        }
        let most = if caller.policy.only_first_tries && previous > 0 {
            1
        } else {
            caller.attempts
        };
        let mut last = End::answered(Code::OK);
        for attempt in 1..=most {
            let is_numbered = caller.layer != Layer::Envoy && self.undeclared != Some(link);
            let number = is_numbered.then_some(((number - 1) << 32) + u64::from(attempt));
            let path: Vec<u64> = path.iter().copied().chain(number).collect();
            let told = if caller.layer == Layer::Code {
                attempt - 1
            } else {
                previous
            };
            self.counted.sent[link] += 1;
            last = match self.own_fault(link, true, request, &path, u32::MAX.into()) {
                Some(failed) => failed,
                None => self.arrive(link, request, &path, told),
            };
            if !last.again(caller) {
                break;
            }
        }
        last.up(caller)
    }

    fn own_fault(&mut self, link: usize, inside: bool, request: u64, path: &[u64], place: u64) -> Option<End> {
        let caller = &self.topology.callers[link];
        let client = caller.client_fault.filter(|client| client.inside == inside)?;
        let path: Vec<u64> = path.iter().copied().chain([place]).collect();
        let kind = self.happens(self.topology.services.len() + link, client.fault, request, &path)?;
        End::of(kind, caller)
    }

    fn arrive(&mut self, at: usize, request: u64, path: &[u64], previous: u32) -> End {
        let service = &self.topology.services[at];
        let caller = &self.topology.callers[at];
        if service.fault == REFUSE {
            return End::lost(Code::UNAVAILABLE);
        }
        self.counted.received[at] += 1;
        let happens = self.happens(at, service.fault, request, path);
        let fails = happens.and_then(|kind| End::of(kind, caller));
        let is_after = matches!(happens, Some(Kind::Fail(fail)) if fail.after);
        if let Some(failed) = fails
            && !is_after
        {
            return failed;
        }
        let own = if at + 1 < self.topology.services.len() {
            let below = self.calls(at, request, path, previous);
            match service.on_failure {
                Some(code) if below.code != Code::OK => End::answered(code),
                _ => below,
            }
        } else if self.topology.load.invalid_item {
            End::answered(Code::INVALID_ARGUMENT)
        } else {
            End::answered(Code::OK)
        };
        if own.code != Code::OK {
            return own;
        }
        self.counted.work_done[at] += 1;
        fails.unwrap_or(own)
    }

    fn calls(&mut self, at: usize, request: u64, path: &[u64], previous: u32) -> End {
        let service = &self.topology.services[at];
        let mut ends = Vec::new();
        for number in 1..=u64::from(service.calls) {
            ends.push(self.call(at + 1, number, request, path, previous));
            let is_over = ends.last().is_some_and(|end: &End| end.code != Code::OK);
            if is_over && service.fan_out == FanOut::Sequence {
                break;
            }
        }
        let failed = ends.iter().find(|end| end.code != Code::OK);
        *failed.unwrap_or(&ends[0])
    }

    /// What a fault does to whoever comes to its place now.
    fn happens(&mut self, place: usize, fault: Fault, request: u64, path: &[u64]) -> Option<Kind> {
        let before = if fault.when.per_process {
            self.before_in_process[place]
        } else {
            self.before_in_request[place]
        };
        self.before_in_process[place] += 1;
        self.before_in_request[place] += 1;
        let times = self.paths.entry((place, path.to_vec())).or_default();
        let occurrence = *times;
        *times += 1;
        let in_range = fault.when.first.is_none_or(|first| before < first);
        let drawn = |p| (self.drawn)(request, path, occurrence, p);
        (in_range && fault.when.p.is_none_or(drawn)).then_some(fault.kind)
    }
}

/// The rule of the draw, as documented beside the fault.
pub fn documented_share<Number: Copy + Into<u64>>(seed: u64, request: u64, path: &[Number], occurrence: u64) -> f64 {
    fn mix(number: u64) -> u64 {
        let mut number = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
        number ^= number >> 30;
        number = number.wrapping_mul(0xBF58_476D_1CE4_E5B9);
        number ^= number >> 27;
        number = number.wrapping_mul(0x94D0_49BB_1331_11EB);
        number ^ (number >> 31)
    }
    let numbers = [request]
        .into_iter()
        .chain(path.iter().map(|attempt| (*attempt).into()))
        .chain([occurrence]);
    let mixed = numbers.fold(mix(seed), |mixed, number| mix(mixed ^ number));
    (mixed >> 11) as f64 / 2_f64.powi(53)
}

/// The walk with a layer of so many attempts behind a caller, as `--undeclared` puts one there. Its row of arrivals is taken
/// out of what was counted, which then reads like any other run of `topology`.
pub fn walk_with_undeclared(topology: &Topology, behind: usize, attempts: u32) -> Counted {
    let mut with = topology.clone();
    let hidden = Caller {
        layer: Layer::Proxy,
        attempts,
        policy: Policy::default(),
        answers_only: false,
        client_fault: None,
        raw_codes: false,
        ..topology.callers[behind].clone()
    };
    with.callers.insert(behind + 1, hidden);
    let works = Service {
        fault: Fault::NONE,
        on_failure: None,
        calls: 1,
        ..topology.services[behind].clone()
    };
    with.services.insert(behind, works);
    let seed = topology.load.seed;
    let mut walk = Walk::new(&with, |request, path: &[u64], occurrence, p| {
        documented_share(seed, request, path, occurrence) < p
    });
    walk.undeclared = Some(behind + 1);
    let mut counted = walk.all();
    // What the caller sent stands on the link to the layer, what the service received on the link from it.
    counted.calls.remove(behind + 1);
    counted.sent.remove(behind + 1);
    counted.received.remove(behind);
    counted.work_done.remove(behind);
    counted
}

pub fn walk_with_documented_draws(topology: &Topology) -> Counted {
    let seed = topology.load.seed;
    Walk::new(topology, |request, path: &[u64], occurrence, p| {
        documented_share(seed, request, path, occurrence) < p
    })
    .all()
}

/// Holds every count of the prediction to be exact, and the same as this one.
pub fn assert_exact(topology: &Topology, counted: &Counted) {
    let prediction = predict(topology, Draws::Replay);
    let same = |predicted: &Predicted, counted: u64, what: &str| {
        let expected = Count::from(counted);
        assert_eq!(
            (predicted.kind, predicted.min, predicted.max),
            (model::Kind::Exact, expected, expected),
            "{what}: {topology:#?}"
        );
    };
    for (number, service) in prediction.services.iter().enumerate() {
        same(&service.received, counted.received[number], "received");
        same(&service.work_done, counted.work_done[number], "work done");
        same(&prediction.links[number].calls, counted.calls[number], "calls");
        same(&prediction.links[number].sent, counted.sent[number], "sent");
    }
    let mut codes: Vec<Code> = prediction.failed_by_code.keys().copied().collect();
    codes.extend(counted.ended.keys().copied());
    for code in codes {
        let ended = counted.ended.get(&code).copied().unwrap_or(0);
        match (code, prediction.failed_by_code.get(&code)) {
            (Code::OK, _) => same(&prediction.ok, ended, "ok"),
            (_, Some(predicted)) => same(predicted, ended, "failed"),
            (_, None) => assert_eq!(ended, 0, "{code} was not predicted: {topology:#?}"),
        }
    }
}

/// Whatever came lies within what was predicted, and exact is one number.
pub fn assert_within(topology: &Topology, prediction: &Prediction, counted: &Counted) {
    let within = |predicted: &Predicted, counted: u64, what: &str| {
        let counted = Count::from(counted);
        assert!(
            predicted.min <= counted && counted <= predicted.max,
            "{what} {counted}: {predicted:?} {topology:#?}"
        );
        assert_eq!(predicted.kind == model::Kind::Exact, predicted.min == predicted.max);
    };
    for (number, service) in prediction.services.iter().enumerate() {
        within(&service.received, counted.received[number], "received");
        within(&service.work_done, counted.work_done[number], "work done");
        within(&prediction.links[number].calls, counted.calls[number], "calls");
        within(&prediction.links[number].sent, counted.sent[number], "sent");
    }
    within(&prediction.ok, counted.ended.get(&Code::OK).copied().unwrap_or(0), "ok");
    for (code, count) in counted.ended.iter().filter(|(code, _)| **code != Code::OK) {
        within(&prediction.failed_by_code[code], *count, "failed");
    }
}
