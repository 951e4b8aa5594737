//! What the tests hold the model against: random chains, and a walk of the tree that knows none of the model's shortcuts.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part")]

use model::fault::{self, Kind, When};
use model::{Caller, Code, Fault, Layer, Load, PassesOn, Policy, RetryOn, Service, Topology};
use std::collections::BTreeMap;

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

pub fn fail_of(fault: Fault) -> Option<Fail> {
    let Kind::Fail(told) = fault.kind else { return None };
    Some(Fail {
        code: told.code,
        first: fault.when.first,
        p: fault.when.p,
        per_process: fault.when.per_process,
        after: told.after,
    })
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
    topology
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

/// A walk of every arrival, one after another.
pub struct Walk<'a, Drawn> {
    pub topology: &'a Topology,
    pub counted: Counted,
    /// Whether an arrival's draw comes out below p: request, path, p.
    pub drawn: Drawn,
    pub before_in_process: Vec<u64>,
    pub before_in_request: Vec<u64>,
}

impl<'a, Drawn: FnMut(u64, &[u32], f64) -> bool> Walk<'a, Drawn> {
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
            before_in_process: zeros.clone(),
            before_in_request: zeros,
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
        let code = self.call(0, request, &[]);
        *self.counted.ended.entry(code).or_default() += 1;
        code
    }

    fn call(&mut self, link: usize, request: u64, path: &[u32]) -> Code {
        self.counted.calls[link] += 1;
        let mut last = Code::OK;
        for attempt in 1..=self.topology.callers[link].attempts {
            let path: Vec<u32> = path.iter().copied().chain([attempt]).collect();
            self.counted.sent[link] += 1;
            last = self.arrive(link, request, &path);
            let again = match &self.topology.callers[link].retry_on {
                RetryOn::Any => last != Code::OK,
                RetryOn::Codes(codes) => last != Code::OK && codes.contains(&last),
            };
            if !again {
                break;
            }
        }
        last
    }

    fn arrive(&mut self, at: usize, request: u64, path: &[u32]) -> Code {
        let service = &self.topology.services[at];
        if service.fault == REFUSE {
            return Code::UNAVAILABLE;
        }
        self.counted.received[at] += 1;
        let fails = self.fails(at, request, path);
        self.before_in_process[at] += 1;
        self.before_in_request[at] += 1;
        if let Some(Fail { after: false, code, .. }) = fails {
            return code;
        }
        let own = if at + 1 == self.topology.services.len() {
            if self.topology.load.invalid_item {
                Code::INVALID_ARGUMENT
            } else {
                Code::OK
            }
        } else {
            match self.call(at + 1, request, path) {
                Code::OK => Code::OK,
                failure => service.on_failure.unwrap_or(failure),
            }
        };
        if own != Code::OK {
            return own;
        }
        self.counted.work_done[at] += 1;
        fails.map_or(Code::OK, |fail| fail.code)
    }

    fn fails(&mut self, at: usize, request: u64, path: &[u32]) -> Option<Fail> {
        let fail = fail_of(self.topology.services[at].fault)?;
        let before = if fail.per_process {
            self.before_in_process[at]
        } else {
            self.before_in_request[at]
        };
        let in_range = fail.first.is_none_or(|first| before < first);
        (in_range && fail.p.is_none_or(|p| (self.drawn)(request, path, p))).then_some(fail)
    }
}

/// The rule of the draw, as documented beside the fault.
pub fn documented_share(seed: u64, request: u64, path: &[u32]) -> f64 {
    fn mix(number: u64) -> u64 {
        let mut number = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
        number ^= number >> 30;
        number = number.wrapping_mul(0xBF58_476D_1CE4_E5B9);
        number ^= number >> 27;
        number = number.wrapping_mul(0x94D0_49BB_1331_11EB);
        number ^ (number >> 31)
    }
    let occurrence = 0;
    let numbers = [request]
        .into_iter()
        .chain(path.iter().map(|attempt| u64::from(*attempt)))
        .chain([occurrence]);
    let mixed = numbers.fold(mix(seed), |mixed, number| mix(mixed ^ number));
    (mixed >> 11) as f64 / 2_f64.powi(53)
}

pub fn walk_with_documented_draws(topology: &Topology) -> Counted {
    let seed = topology.load.seed;
    Walk::new(topology, |request, path: &[u32], p| {
        documented_share(seed, request, path) < p
    })
    .all()
}
