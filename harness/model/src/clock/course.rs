//! One course of events: every call, attempt and timer, in the order in which they happen.
//!
//! An event has a [`Span`] of time and not a point. The next event is the one that may come first; where another one that it
//! matters to may come before it, the course forks, and [`Choices`] says which way it goes.

use super::choices::Choices;
use super::is_drawn;
use super::limits::Limits;
use super::time::Span;
use crate::acting::{APART_US, hop_us};
use crate::chain::{Layout, What};
use crate::draw::{Draw, Occurrences};
use crate::ended::Ended;
use crate::fault::{Fault, Kind, When};
use crate::topology::{Backoff, Caller, Code, Layer, PassesOn, Service, Topology};
use std::collections::{BTreeMap, HashMap};

/// Which requests one course has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Requests {
    pub(super) first: u64,
    pub(super) count: u64,
}

/// What one course came to.
#[derive(Debug, Clone)]
pub(super) struct Came {
    pub(super) counts: Vec<u64>,
    /// The most arrivals at the bottom, and at all services together, that one request caused.
    pub(super) worst: (u64, u64),
    /// The smallest distance of two events that were taken in order, microseconds.
    pub(super) margin_us: u64,
    /// Callers whose throttle or budget said no.
    pub(super) refused: Vec<bool>,
}

type CallId = usize;
type AttemptId = usize;

#[derive(Debug, Clone, Copy)]
struct Deadline {
    at: Span,
    /// Deadlines of one origin end together, the top one first.
    origin: u32,
}

#[derive(Debug)]
struct Call {
    hop: usize,
    parent: Option<AttemptId>,
    request: u64,
    deadline: Option<Deadline>,
    path: Draw,
    /// Which of its parent's calls it is, from 1.
    number: u32,
    /// Whether the nearest code above made it in an attempt after its first: proxies between leave that as it was.
    from_retry: bool,
    made: u32,
    outstanding: Vec<AttemptId>,
    /// Back-offs since the callee last said when to come again.
    backoffs: u32,
    /// Waits that have begun.
    waits: u32,
    /// When what the next attempt was paid with is forgotten.
    paid: Option<Span>,
    body: Body,
    /// Whether its next attempt counts as a retry that is under way.
    is_waiting: bool,
    stage: CallStage,
}

/// The request of a call, which a hedge waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Body {
    /// No attempt has left the caller yet.
    Unread,
    /// Nor has one, and a hedge is due.
    Awaited,
    Read,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallStage {
    Sends,
    /// What was sent may still be answered.
    SendsNoMore,
    Done,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AttemptStage {
    OnItsWay,
    /// Its service works on it.
    Works,
    Over,
}

#[derive(Debug)]
struct Attempt {
    call: CallId,
    number: u32,
    path: Draw,
    stage: AttemptStage,
    /// Whether nobody waits for it any more.
    is_alone: bool,
    holds_place: bool,
    is_retry: bool,
    deadline: Option<Deadline>,
    /// When it arrived.
    arrived: Span,
    fault: Kind,
    children: Children,
}

/// The calls that a service makes for one arrival.
#[derive(Debug, Default)]
struct Children {
    begun: Vec<CallId>,
    /// Those that have not ended.
    open: u32,
    /// What they are given of the time.
    deadline: Option<Deadline>,
    /// The failure of the first of them, by its number, that failed.
    failed: Option<(u32, Ended)>,
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Begin(u64),
    Leave(CallId),
    /// A wait in the caller's way out is over.
    Ready(CallId, Option<Code>),
    AttemptReady(AttemptId, Option<Code>),
    Arrive(AttemptId),
    Work(AttemptId),
    Answer(AttemptId, Ended),
    Timeout(AttemptId),
    CallDeadline(CallId),
    ArrivalDeadline(AttemptId),
    /// A wait is over; the latest counts.
    Send(CallId, u32),
    Hedge(CallId, u32),
    /// A service has noticed that nobody waits for an arrival any more.
    Vacate(AttemptId),
}

impl Event {
    /// Whether it may end work that is under way below.
    fn ends(self) -> bool {
        matches!(
            self,
            Self::Leave(_) | Self::CallDeadline(_) | Self::Timeout(_) | Self::ArrivalDeadline(_) | Self::Answer(..)
        )
    }

    /// Whether it changes what its call does next, and not one attempt alone.
    fn is_of_call(self) -> bool {
        !matches!(
            self,
            Self::Arrive(_) | Self::Work(_) | Self::ArrivalDeadline(_) | Self::Vacate(_)
        )
    }
}

/// What is counted over all requests at one link and its service.
#[derive(Debug)]
struct Hop {
    limits: Limits,
    arrived: u64,
    passed_out: u64,
    inside: u64,
    /// Whether arrivals or calls of different requests, or of one, share anything here.
    shares: bool,
    /// Whether an attempt path may come here more than once in a request.
    repeats_paths: bool,
}

/// One request that is under way.
#[derive(Debug, Default)]
struct Request {
    arrived: Vec<u64>,
    passed_out: Vec<u64>,
    arrivals: u64,
    came: Occurrences,
}

pub(super) struct Course<'a> {
    chain: &'a Topology,
    layout: &'a Layout,
    choices: &'a mut Choices,
    requests: Requests,
    hop_us: u64,
    now: Span,
    queue: BTreeMap<(u64, u64), (u64, Event)>,
    pushed: u64,
    calls: Vec<Call>,
    attempts: Vec<Attempt>,
    hops: Vec<Hop>,
    alive: HashMap<u64, Request>,
    origins: u32,
    /// The deadline that ends calls just now.
    ending: Option<u32>,
    came: Came,
    steps_left: u64,
    happened: u64,
    /// Events that the last one was compared with.
    compared: u64,
}

impl<'a> Course<'a> {
    /// The course that `choices` leads to; `None` when it has more than `most_steps` events.
    pub(super) fn run(
        chain: &'a Topology,
        layout: &'a Layout,
        requests: Requests,
        choices: &'a mut Choices,
        most_steps: &mut u64,
    ) -> Option<Came> {
        let mut course = Self {
            chain,
            layout,
            choices,
            requests,
            hop_us: hop_us(chain),
            now: Span::default(),
            queue: BTreeMap::new(),
            pushed: 0,
            calls: Vec::new(),
            attempts: Vec::new(),
            hops: hops(chain),
            alive: HashMap::new(),
            origins: 0,
            ending: None,
            came: Came {
                counts: vec![0; layout.len()],
                worst: (0, 0),
                margin_us: u64::MAX,
                refused: vec![false; chain.callers.len()],
            },
            steps_left: *most_steps,
            happened: 0,
            compared: 0,
        };
        course.push(Span::default(), Event::Begin(0));
        while let Some(event) = course.next() {
            let cost = 1 + course.compared / COMPARISONS_PER_STEP;
            course.steps_left = course.steps_left.checked_sub(cost)?;
            if matches!(event, Event::Begin(_)) {
                course.forget();
            }
            course.happened += 1;
            if course.happened.is_multiple_of(STEPS_BETWEEN_SWEEPS) {
                course.sweep();
            }
            course.happen(event);
        }
        *most_steps = course.steps_left;
        Some(course.came)
    }

    fn push(&mut self, at: Span, event: Event) {
        self.queue.insert((at.lo, self.pushed), (at.hi, event));
        self.pushed += 1;
    }

    /// The event that happens next.
    fn next(&mut self) -> Option<Event> {
        loop {
            let (key, (hi, event)) = self.queue.first_key_value().map(|(key, value)| (*key, *value))?;
            if !self.matters(event) {
                self.queue.remove(&key);
                continue;
            }
            self.compared = self.queue.len() as u64;
            let mut rivals = vec![key];
            let mut nearest = u64::MAX;
            for (other, (_, rival)) in self
                .queue
                .range((std::ops::Bound::Excluded(key), std::ops::Bound::Unbounded))
            {
                if !self.matters(*rival) || !self.meet(event, *rival) {
                    continue;
                }
                if other.0 <= hi.saturating_add(APART_US) {
                    rivals.push(*other);
                } else {
                    nearest = nearest.min(other.0 - hi);
                }
            }
            self.came.margin_us = self.came.margin_us.min(nearest);
            let chosen = rivals[self.choices.choose(rivals.len())];
            let (hi, event) = self.queue.remove(&chosen)?;
            self.now = Span { lo: chosen.0, hi }.not_before(self.now);
            return Some(event);
        }
    }

    /// Whether an event still does anything.
    fn matters(&self, event: Event) -> bool {
        match event {
            Event::Begin(_) | Event::Vacate(_) => true,
            Event::Leave(call) | Event::Ready(call, _) | Event::CallDeadline(call) => {
                self.calls[call].stage != CallStage::Done
            }
            Event::Send(call, times) => {
                let call = &self.calls[call];
                call.stage != CallStage::Done && call.is_waiting && call.waits == times
            }
            Event::Hedge(call, made) => {
                let call = &self.calls[call];
                // A callee that says when to come again says it for hedges too.
                call.stage == CallStage::Sends && call.made == made && !call.is_waiting
            }
            Event::Arrive(attempt)
            | Event::AttemptReady(attempt, _)
            | Event::Answer(attempt, ..)
            | Event::Timeout(attempt) => self.waits_for(attempt),
            Event::Work(attempt) => self.works(attempt),
            Event::ArrivalDeadline(attempt) => self.works(attempt) && !self.attempts[attempt].is_alone,
        }
    }

    fn waits_for(&self, attempt: AttemptId) -> bool {
        let call = &self.calls[self.attempts[attempt].call];
        call.stage != CallStage::Done && call.outstanding.contains(&attempt)
    }

    fn works(&self, attempt: AttemptId) -> bool {
        self.attempts[attempt].stage == AttemptStage::Works
    }

    /// Whether it matters which of two events comes first.
    fn meet(&self, one: Event, two: Event) -> bool {
        if let (Some(one), Some(two)) = (self.origin(one), self.origin(two))
            && one == two
        {
            return false;
        }
        let (touched_one, touched_two) = (self.touches(one), self.touches(two));
        let both = *touched_one.start().max(touched_two.start())..=*touched_one.end().min(touched_two.end());
        if both.into_iter().any(|hop| self.hops[hop].shares) {
            return true;
        }
        let (Some(call_one), Some(call_two)) = (self.call_of(one), self.call_of(two)) else {
            return false;
        };
        // What ends a call ends everything below it; a hedge is sent unless an answer came up before, so that what leads to one
        // decides too; what only goes on meets nothing but its own call.
        let decides = |one: Event, two: Event| one.ends() || matches!((one, two), (Event::Hedge(..), Event::Work(_)));
        (decides(one, two) && self.is_above(call_one, call_two))
            || (decides(two, one) && self.is_above(call_two, call_one))
            || (call_one == call_two && one.is_of_call() && two.is_of_call())
            || (self.may_win(one) && matches!(two, Event::Hedge(..)) && self.compete(call_one, call_two))
            || (self.may_win(two) && matches!(one, Event::Hedge(..)) && self.compete(call_two, call_one))
    }

    /// Whether an answer that takes away other attempts may follow from it at once: one that is not tried again.
    fn may_win(&self, event: Event) -> bool {
        match event {
            Event::Answer(attempt, ended) => !self.caller(self.attempts[attempt].call).tries_again(ended),
            Event::Work(attempt) => {
                let call = self.attempts[attempt].call;
                let fault = &self.chain.services[self.calls[call].hop].fault;
                let always = fault.when == When::default();
                !matches!(fault.kind, Kind::Fail(fail) if always && self.caller(call).tries_again(fail.into()))
            }
            _ => false,
        }
    }

    /// Whether two calls are under way for different attempts of one hedged call: the answer of one takes away the other.
    fn compete(&self, one: CallId, two: CallId) -> bool {
        let above = |call: CallId| {
            let parent = move |call: CallId| {
                let attempt = self.calls[call]
                    .parent
                    .filter(|attempt| !self.attempts[*attempt].is_alone)?;
                Some((self.attempts[attempt].call, attempt))
            };
            std::iter::successors(parent(call), move |(call, _)| parent(*call))
        };
        let met = above(one).find_map(|(call, first)| {
            let (_, second) = above(two).find(|(other, _)| *other == call)?;
            Some((call, first, second))
        });
        met.is_some_and(|(call, first, second)| {
            first != second && self.chain.callers[self.calls[call].hop].policy.hedge_us.is_some()
        })
    }

    /// The hops whose counts and limits an event may change: its own, the one that is called next, the one that is answered.
    fn touches(&self, event: Event) -> std::ops::RangeInclusive<usize> {
        let hop = self.call_of(event).map_or(0, |call| self.calls[call].hop);
        hop.saturating_sub(1)..=(hop + 1).min(self.hops.len() - 1)
    }

    fn origin(&self, event: Event) -> Option<u32> {
        let deadline = match event {
            Event::CallDeadline(call) => self.calls[call].deadline,
            Event::ArrivalDeadline(attempt) => self.attempts[attempt].deadline,
            _ => None,
        };
        deadline.map(|deadline| deadline.origin)
    }

    fn call_of(&self, event: Event) -> Option<CallId> {
        match event {
            Event::Begin(_) => None,
            Event::Leave(call)
            | Event::Ready(call, _)
            | Event::CallDeadline(call)
            | Event::Send(call, _)
            | Event::Hedge(call, _) => Some(call),
            Event::AttemptReady(attempt, _)
            | Event::Arrive(attempt)
            | Event::Work(attempt)
            | Event::Answer(attempt, ..)
            | Event::Timeout(attempt)
            | Event::Vacate(attempt)
            | Event::ArrivalDeadline(attempt) => Some(self.attempts[attempt].call),
        }
    }

    /// Whether a call is another one or led to it, and still has it in its hand.
    fn is_above(&self, above: CallId, mut below: CallId) -> bool {
        loop {
            if above == below {
                return true;
            }
            match self.calls[below].parent {
                Some(attempt) if !self.attempts[attempt].is_alone => below = self.attempts[attempt].call,
                _ => return false,
            }
        }
    }

    fn count(&mut self, hop: usize, what: What) {
        self.came.counts[self.layout.at(hop, what)] += 1;
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Begin(index) => self.begin_request(index),
            Event::Leave(call) => {
                self.drop_call(call);
                self.end_request(call, Code::CANCELLED);
            }
            Event::Ready(call, None) => self.begin_call(call),
            Event::Ready(call, Some(code)) => {
                self.count(self.calls[call].hop, What::Calls);
                self.finish(call, code.into());
            }
            Event::AttemptReady(attempt, None) => self.leave_caller(attempt),
            Event::AttemptReady(attempt, Some(code)) => {
                self.count(self.hop_of(attempt), What::Lost);
                self.answered(attempt, code.into());
            }
            Event::Arrive(attempt) => self.arrive(attempt),
            Event::Work(attempt) => self.work(attempt),
            Event::Answer(attempt, ended) => self.answered(attempt, ended),
            Event::Timeout(attempt) => {
                self.abandon(attempt);
                self.answered(attempt, self.chain.callers[self.hop_of(attempt)].timed_out());
            }
            Event::CallDeadline(call) => {
                self.ending = self.origin(event);
                self.drop_call(call);
                self.ending = None;
                self.deliver(call, Code::DEADLINE_EXCEEDED.into());
            }
            Event::ArrivalDeadline(attempt) => {
                self.ending = self.origin(event);
                self.expire(attempt);
                self.ending = None;
            }
            Event::Send(call, _) => self.send(call),
            Event::Hedge(call, _) => self.hedge(call),
            Event::Vacate(attempt) => self.vacate(attempt),
        }
    }

    fn begin_request(&mut self, index: u64) {
        let load = self.chain.load;
        let number = self.requests.first.wrapping_add(index);
        let hops = self.hops.len();
        self.alive.insert(
            index,
            Request {
                arrived: vec![0; hops],
                passed_out: vec![0; hops],
                arrivals: 0,
                came: Occurrences::default(),
            },
        );
        if let Some(interval) = load.interval_us
            && index + 1 < self.requests.count
        {
            let at = (index + 1).saturating_mul(interval);
            self.push(Span { lo: at, hi: at }.timer(0, 0), Event::Begin(index + 1));
        }
        let deadline = load.deadline_us.map(|us| self.new_deadline(self.now.after(us)));
        let begun = Draw::of_request(load.seed, number);
        let call = self.new_call(0, None, index, deadline, begun, false);
        if let Some(us) = load.cancel_after_us {
            self.push(self.now.timer(us, us), Event::Leave(call));
        }
        self.pass_client_fault(call);
    }

    fn end_request(&mut self, call: CallId, code: Code) {
        let index = self.calls[call].request;
        self.came.counts[self.layout.ended(code)] += 1;
        if self.chain.load.interval_us.is_none() && index + 1 < self.requests.count {
            self.push(self.now, Event::Begin(index + 1));
        }
    }

    fn new_deadline(&mut self, at: Span) -> Deadline {
        self.origins += 1;
        Deadline {
            at,
            origin: self.origins,
        }
    }

    fn new_call(
        &mut self,
        hop: usize,
        parent: Option<AttemptId>,
        request: u64,
        deadline: Option<Deadline>,
        path: Draw,
        from_retry: bool,
    ) -> CallId {
        self.calls.push(Call {
            hop,
            parent,
            request,
            deadline,
            path,
            number: 1,
            from_retry,
            made: 0,
            outstanding: Vec::new(),
            backoffs: 0,
            waits: 0,
            paid: None,
            body: Body::Unread,
            is_waiting: false,
            stage: CallStage::Sends,
        });
        self.calls.len() - 1
    }

    /// The fault in the caller's way out that meets a whole call, and then the call.
    fn pass_client_fault(&mut self, call: CallId) {
        let (hop, request, path, deadline) = {
            let call = &self.calls[call];
            (
                call.hop,
                call.request,
                call.path.outside_loop(call.number),
                call.deadline,
            )
        };
        if let Some(deadline) = deadline {
            self.push(deadline.at.timer(0, 0), Event::CallDeadline(call));
        }
        match self.chain.callers[hop].client_fault.filter(|client| !client.inside) {
            None => self.begin_call(call),
            Some(client) => {
                let (wait, code) = self.decide_out(hop, request, path, &client.fault);
                match wait {
                    None => self.happen(Event::Ready(call, code)),
                    Some((least, most)) => self.push(self.now.timer(least, most), Event::Ready(call, code)),
                }
            }
        }
    }

    /// What a fault in a caller's way out does.
    fn decide_out(
        &mut self,
        hop: usize,
        request: u64,
        path: Draw,
        fault: &Fault,
    ) -> (Option<(u64, u64)>, Option<Code>) {
        let of_request = self.alive.get_mut(&request).map_or(0, |alive| {
            alive.passed_out[hop] += 1;
            alive.passed_out[hop] - 1
        });
        let of_process = self.hops[hop].passed_out;
        self.hops[hop].passed_out += 1;
        let occurrence = self.occurrence(hop, self.hops.len() + hop, request, path);
        let (wait, kind) = decide(fault, of_request, of_process, path, occurrence);
        let code = match kind {
            Kind::Fail(fail) => Some(fail.code),
            _ => None,
        };
        (wait, code)
    }

    fn begin_call(&mut self, call: CallId) {
        let hop = self.calls[call].hop;
        self.count(hop, What::Calls);
        self.hops[hop].limits.deposit(self.now);
        self.send(call);
    }

    fn caller(&self, call: CallId) -> &'a Caller {
        &self.chain.callers[self.calls[call].hop]
    }

    fn hop_of(&self, attempt: AttemptId) -> usize {
        self.calls[self.attempts[attempt].call].hop
    }

    /// The next attempt.
    fn send(&mut self, call: CallId) {
        let caller = self.caller(call);
        let hop = self.calls[call].hop;
        self.count(hop, What::Sent);
        self.hops[hop].limits.in_flight += 1;
        let attempt = self.attempts.len();
        let state = &mut self.calls[call];
        state.made += 1;
        state.outstanding.push(attempt);
        let is_retry = std::mem::take(&mut state.is_waiting);
        state.paid = None;
        let (number, request, deadline) = (state.made, state.request, state.deadline);
        let path = caller.path(state.path, state.number, number);
        self.attempts.push(Attempt {
            call,
            number,
            path,
            stage: AttemptStage::OnItsWay,
            is_alone: false,
            holds_place: false,
            is_retry,
            deadline,
            arrived: Span::default(),
            fault: Kind::None,
            children: Children::default(),
        });
        if let Some(us) = caller.policy.attempt_timeout_us {
            self.push(self.now.timer(us, us), Event::Timeout(attempt));
        }
        if let Some(us) = caller.policy.hedge_us
            && number < caller.attempts
        {
            self.push(self.now.timer(us, us), Event::Hedge(call, number));
        }
        match caller.client_fault.filter(|client| client.inside) {
            None => self.leave_caller(attempt),
            Some(client) => {
                let (wait, code) = self.decide_out(hop, request, path.inside_loop(), &client.fault);
                match wait {
                    None => self.happen(Event::AttemptReady(attempt, code)),
                    Some((least, most)) => self.push(self.now.timer(least, most), Event::AttemptReady(attempt, code)),
                }
            }
        }
    }

    fn leave_caller(&mut self, attempt: AttemptId) {
        let hop = self.hop_of(attempt);
        let call = self.attempts[attempt].call;
        if std::mem::replace(&mut self.calls[call].body, Body::Read) == Body::Awaited {
            self.push(self.now, Event::Hedge(call, self.calls[call].made));
        }
        let there = self.now.within(self.hop_us);
        if self.chain.services[hop].fault.kind == Kind::Refuse {
            self.count(hop, What::Lost);
            self.push(there, Event::Answer(attempt, Ended::REFUSED));
        } else {
            self.push(there, Event::Arrive(attempt));
        }
    }

    fn arrive(&mut self, attempt: AttemptId) {
        let call = self.attempts[attempt].call;
        let (hop, request) = (self.calls[call].hop, self.calls[call].request);
        let path = self.attempts[attempt].path;
        let fault = self.chain.services[hop].fault;
        self.count(hop, What::Received);
        self.came.counts[self.layout.arrivals()] += 1;
        self.attempts[attempt].stage = AttemptStage::Works;
        self.attempts[attempt].arrived = self.now;
        let is_bottom = hop + 1 == self.hops.len();
        let of_request = self.alive.get_mut(&request).map_or(0, |alive| {
            alive.arrived[hop] += 1;
            alive.arrivals += 1;
            let worst = &mut self.came.worst;
            worst.1 = worst.1.max(alive.arrivals);
            if is_bottom {
                worst.0 = worst.0.max(alive.arrived[hop]);
            }
            alive.arrived[hop] - 1
        });
        let of_process = self.hops[hop].arrived;
        self.hops[hop].arrived += 1;
        if let Some(deadline) = self.attempts[attempt].deadline {
            self.push(deadline.at.timer(0, 0), Event::ArrivalDeadline(attempt));
        }
        let occurrence = self.occurrence(hop, hop, request, path);
        let (wait, kind) = decide(&fault, of_request, of_process, path, occurrence);
        self.attempts[attempt].fault = kind;
        if let Kind::Overload { capacity, code } = kind {
            if self.hops[hop].inside >= u64::from(capacity) {
                return self.reply(attempt, code.into());
            }
            self.hops[hop].inside += 1;
            self.attempts[attempt].holds_place = true;
        }
        match wait {
            None => self.work(attempt),
            Some((least, most)) => self.push(self.now.timer(least, most), Event::Work(attempt)),
        }
    }

    fn work(&mut self, attempt: AttemptId) {
        let hop = self.hop_of(attempt);
        match self.attempts[attempt].fault {
            Kind::Hang => return,
            Kind::Cut(cut) => {
                self.count(hop, What::Cut);
                return self.reply(attempt, self.chain.callers[hop].sees(cut));
            }
            Kind::Fail(fail) if !fail.after => return self.reply(attempt, fail.into()),
            Kind::None | Kind::Refuse | Kind::Fail(_) | Kind::Overload { .. } => {}
        }
        if hop + 1 == self.hops.len() {
            let own = if self.chain.load.invalid_item {
                Code::INVALID_ARGUMENT
            } else {
                Code::OK
            };
            return self.worked(attempt, own.into());
        }
        let service = &self.chain.services[hop];
        let at_once = if service.is_parallel() { service.calls } else { 1 };
        self.attempts[attempt].children.open = at_once;
        self.attempts[attempt].children.deadline = self.passed_on(attempt, hop);
        for _ in 0..at_once {
            self.begin_child(attempt, hop);
        }
    }

    /// A service makes the next of its calls.
    fn begin_child(&mut self, attempt: AttemptId, hop: usize) {
        let Attempt {
            call,
            path,
            ref children,
            ..
        } = self.attempts[attempt];
        let (deadline, number) = (children.deadline, children.begun.len() + 1);
        let from_retry = self.arrived_as_retry(attempt);
        let child = self.new_call(
            hop + 1,
            Some(attempt),
            self.calls[call].request,
            deadline,
            path,
            from_retry,
        );
        self.calls[child].number = u32::try_from(number).expect("the number of calls is a u32");
        self.attempts[attempt].children.begun.push(child);
        self.pass_client_fault(child);
    }

    /// Whether `grpc-previous-rpc-attempts` comes with an arrival: code writes it anew, a proxy leaves it as it was.
    fn arrived_as_retry(&self, attempt: AttemptId) -> bool {
        let Attempt { call, number, .. } = self.attempts[attempt];
        match self.caller(call).layer {
            Layer::Code => number > 1,
            Layer::Proxy | Layer::Envoy => self.calls[call].from_retry,
        }
    }

    /// How often a path of a request has come at a place before, the place being at this hop.
    fn occurrence(&mut self, hop: usize, place: usize, request: u64, path: Draw) -> u64 {
        if !self.hops[hop].repeats_paths {
            return 0;
        }
        let request = self.alive.get_mut(&request);
        request.map_or(0, |alive| alive.came.before(place, path))
    }

    /// The deadline of the call that a service makes.
    fn passed_on(&mut self, attempt: AttemptId, hop: usize) -> Option<Deadline> {
        let rest = self.attempts[attempt].deadline;
        match self.chain.services[hop].passes_on {
            PassesOn::Rest => rest,
            PassesOn::Nothing => None,
            PassesOn::AtMost(us) => {
                let own = self.attempts[attempt].arrived.after(us);
                match rest {
                    Some(rest) if rest.at.hi < own.lo => Some(rest),
                    Some(rest) if rest.at.lo <= own.hi && self.choices.choose(2) == 0 => Some(rest),
                    _ => Some(self.new_deadline(own)),
                }
            }
        }
    }

    /// The work of a service has ended by itself.
    fn worked(&mut self, attempt: AttemptId, own: Ended) {
        let hop = self.hop_of(attempt);
        if own.code.is_failure() {
            return self.reply(attempt, own);
        }
        self.count(hop, What::WorkDone);
        match self.attempts[attempt].fault {
            Kind::Fail(fail) => self.reply(attempt, fail.into()),
            _ => self.reply(attempt, own),
        }
    }

    /// A service has its answer.
    fn reply(&mut self, attempt: AttemptId, ended: Ended) {
        self.leave_service(attempt);
        if !self.attempts[attempt].is_alone {
            self.push(self.now.within(self.hop_us), Event::Answer(attempt, ended));
        }
    }

    fn leave_service(&mut self, attempt: AttemptId) {
        self.attempts[attempt].stage = AttemptStage::Over;
        self.vacate(attempt);
    }

    fn vacate(&mut self, attempt: AttemptId) {
        let hop = self.hop_of(attempt);
        if std::mem::take(&mut self.attempts[attempt].holds_place) {
            self.hops[hop].inside -= 1;
        }
    }

    /// The time that a service was given is over.
    fn expire(&mut self, attempt: AttemptId) {
        let hop = self.hop_of(attempt);
        self.count(hop, What::Unanswered);
        self.push(
            self.now.within(self.hop_us),
            Event::Answer(attempt, Code::DEADLINE_EXCEEDED.into()),
        );
        self.stop_work(attempt, hop);
    }

    /// Nobody waits for a service's work any more.
    fn stop_work(&mut self, attempt: AttemptId, hop: usize) {
        self.attempts[attempt].is_alone = true;
        if !self.chain.services[hop].detached {
            self.attempts[attempt].stage = AttemptStage::Over;
            if self.attempts[attempt].holds_place {
                // The word travels; who comes at the same moment may still find the place taken.
                self.push(self.now.within(self.hop_us), Event::Vacate(attempt));
            }
            for child in std::mem::take(&mut self.attempts[attempt].children.begun) {
                self.drop_call(child);
            }
        }
    }

    /// A caller turns away from an attempt.
    fn abandon(&mut self, attempt: AttemptId) {
        let hop = self.hop_of(attempt);
        let state = &self.attempts[attempt];
        if state.stage == AttemptStage::OnItsWay {
            if self.chain.services[hop].fault.kind != Kind::Refuse {
                self.count(hop, What::Lost);
            }
        } else if state.stage == AttemptStage::Over {
            // Its answer is still on the way, and in truth work takes a moment: it may have been cut short.
            self.count(hop, What::Unanswered);
        } else if !state.is_alone {
            self.count(hop, What::Unanswered);
            self.stop_work(attempt, hop);
        }
    }

    /// A call ends without an answer of its own, and everything below it that nobody has detached.
    fn drop_call(&mut self, call: CallId) {
        if std::mem::replace(&mut self.calls[call].stage, CallStage::Done) == CallStage::Done {
            return;
        }
        let hop = self.calls[call].hop;
        // Those below the one that ends have the same deadline and may see it first.
        if self.ending.is_some() && self.ending == self.calls[call].deadline.map(|deadline| deadline.origin) {
            self.count(hop, What::OutOfTime);
        }
        if std::mem::take(&mut self.calls[call].is_waiting) {
            self.hops[hop].limits.retrying -= 1;
            if let Some(paid) = self.calls[call].paid.take() {
                self.hops[hop].limits.give_back(paid);
            }
        }
        for attempt in std::mem::take(&mut self.calls[call].outstanding) {
            self.abandon(attempt);
            self.end_attempt(attempt);
        }
    }

    /// An attempt is over for its caller's limits.
    fn end_attempt(&mut self, attempt: AttemptId) {
        let hop = self.hop_of(attempt);
        self.hops[hop].limits.in_flight -= 1;
        if std::mem::take(&mut self.attempts[attempt].is_retry) {
            self.hops[hop].limits.retrying -= 1;
        }
    }

    /// An attempt has ended for its caller.
    fn answered(&mut self, attempt: AttemptId, ended: Ended) {
        let call = self.attempts[attempt].call;
        let hop = self.calls[call].hop;
        self.calls[call].outstanding.retain(|other| *other != attempt);
        // An attempt that has ended is no longer under way when the next is asked for.
        self.end_attempt(attempt);
        let next = self.after_failure(call, ended);
        let is_hedged = self.caller(call).policy.hedge_us.is_some();
        match next {
            Next::Deliver => {
                if !ended.code.is_failure() {
                    self.hops[hop].limits.reward();
                }
                self.finish(call, ended);
            }
            Next::GiveUp if is_hedged && !self.calls[call].outstanding.is_empty() => {
                self.calls[call].stage = CallStage::SendsNoMore;
            }
            Next::GiveUp => self.finish(call, ended),
            Next::Again(wait) => {
                let state = &mut self.calls[call];
                state.waits += 1;
                let waits = state.waits;
                if !std::mem::replace(&mut state.is_waiting, true) {
                    self.hops[hop].limits.retrying += 1;
                }
                match wait {
                    None => self.send(call),
                    Some((least, most)) => self.push(self.now.timer(least, most), Event::Send(call, waits)),
                }
            }
        }
    }

    /// What follows the end of an attempt, by the order of checks of gRFC A6 and its implementations.
    fn after_failure(&mut self, call: CallId, ended: Ended) -> Next {
        let caller = self.caller(call);
        let policy = &caller.policy;
        if !ended.code.is_failure() || caller.has_committed(ended) {
            return Next::Deliver;
        }
        let pushback = caller.hears_ms(ended);
        let unwanted = pushback.is_some_and(|ms| ms < 0);
        let hop = self.calls[call].hop;
        let is_retryable = caller.lists(ended);
        if is_retryable || unwanted {
            self.hops[hop].limits.punish();
        }
        if !is_retryable {
            return Next::Deliver;
        }
        if !self.may_send(call) || unwanted {
            return Next::GiveUp;
        }
        if !self.withdraw(call) {
            return Next::GiveUp;
        }
        let state = &mut self.calls[call];
        if let Some(ms) = pushback.and_then(|ms| u64::try_from(ms).ok()) {
            state.backoffs = 0;
            return Next::Again(Some((ms * 1_000, ms * 1_000)));
        }
        state.backoffs += 1;
        let step = state.backoffs;
        let spread = |backoff: Backoff| {
            (
                backoff.wait_us(step, backoff.least),
                backoff.wait_us(step, backoff.most),
            )
        };
        Next::Again(policy.backoff.map(spread))
    }

    /// Whether throttle, number and kind of call allow another attempt.
    fn may_send(&mut self, call: CallId) -> bool {
        let caller = self.caller(call);
        let (hop, made, from_retry) = {
            let call = &self.calls[call];
            (call.hop, call.made, call.from_retry)
        };
        let is_open = self.hops[hop].limits.is_open();
        self.came.refused[hop] |= !is_open;
        is_open
            && made < caller.attempts
            && !(caller.policy.only_first_tries && from_retry)
            && self.calls[call].stage == CallStage::Sends
    }

    /// Pays for a retry; one that waits already is paid for.
    fn withdraw(&mut self, call: CallId) -> bool {
        if self.calls[call].is_waiting {
            return true;
        }
        let hop = self.calls[call].hop;
        let paid = self.hops[hop].limits.withdraw(self.now, self.choices);
        self.came.refused[hop] |= paid.is_none();
        self.calls[call].paid = paid;
        paid.is_some()
    }

    fn hedge(&mut self, call: CallId) {
        let hop = self.calls[call].hop;
        if self.calls[call].body != Body::Read {
            // A delay in the caller reads nothing of the request.
            self.calls[call].body = Body::Awaited;
            return;
        }
        if self.may_send(call) && self.withdraw(call) {
            self.calls[call].is_waiting = true;
            self.hops[hop].limits.retrying += 1;
            self.send(call);
        } else {
            self.calls[call].stage = CallStage::SendsNoMore;
        }
    }

    /// A call has its answer, and lets go of everything else.
    fn finish(&mut self, call: CallId, ended: Ended) {
        self.drop_call(call);
        self.deliver(call, ended);
    }

    fn deliver(&mut self, call: CallId, ended: Ended) {
        let Some(attempt) = self.calls[call].parent else {
            return self.end_request(call, ended.code);
        };
        let hop = self.hop_of(attempt);
        let service = &self.chain.services[hop];
        let ended = self.caller(call).hands_up(ended);
        let number = self.calls[call].number;
        let children = &mut self.attempts[attempt].children;
        children.open -= 1;
        if ended.code.is_failure() && children.failed.is_none_or(|(failed, _)| number < failed) {
            children.failed = Some((number, ended));
        }
        if children.open > 0 {
            return;
        }
        let failed = children.failed.map(|(_, ended)| ended);
        if failed.is_none() && !service.is_parallel() && number < service.calls {
            children.open = 1;
            return self.begin_child(attempt, hop);
        }
        self.worked(attempt, failed.unwrap_or(ended).translated(service.on_failure));
    }

    /// Takes timers out of the queue that do nothing any more.
    fn sweep(&mut self) {
        let queue = std::mem::take(&mut self.queue);
        self.queue = queue
            .into_iter()
            .filter(|(_, (_, event))| self.matters(*event))
            .collect();
    }

    /// Forgets what is over: between two requests nothing refers to it, unless detached work goes on.
    fn forget(&mut self) {
        self.sweep();
        let is_over = self.queue.values().all(|(_, event)| matches!(event, Event::Begin(_)))
            && self.attempts.iter().all(|attempt| attempt.stage != AttemptStage::Works);
        if is_over {
            self.calls.clear();
            self.attempts.clear();
            self.alive.clear();
        }
    }
}

/// The links before anything has happened.
fn hops(chain: &Topology) -> Vec<Hop> {
    let counts =
        |fault: &Fault| fault.when.first.is_some() || fault.delay.is_some_and(|delay| delay.when.first.is_some());
    // Attempts that share a path come one behind another, unless work goes on that its caller has given up.
    let is_crowded = is_drawn(chain)
        && (chain.services.iter().any(|service| service.detached)
            || (chain.callers.iter()).any(|caller| caller.repeats_paths() && caller.policy.hedge_us.is_some()));
    let mut repeats_paths = false;
    let hop = |(caller, service): (&Caller, &Service)| {
        repeats_paths |= caller.repeats_paths();
        Hop {
            limits: Limits::new(&caller.policy),
            arrived: 0,
            passed_out: 0,
            inside: 0,
            shares: caller.policy.throttle.is_some()
                || caller.policy.budget.is_some()
                || counts(&service.fault)
                || caller.client_fault.is_some_and(|client| counts(&client.fault))
                || matches!(service.fault.kind, Kind::Overload { .. } | Kind::Cut(_))
                // Which of two arrivals under one path comes first decides what each of them draws.
                || (repeats_paths && is_crowded),
            repeats_paths,
        }
    };
    chain.callers.iter().zip(&chain.services).map(hop).collect()
}

/// Steps between two sweeps of the queue.
const STEPS_BETWEEN_SWEEPS: u64 = 64;
/// Comparisons that cost as much as an event.
const COMPARISONS_PER_STEP: u64 = 4;

/// What follows an answer.
enum Next {
    Deliver,
    GiveUp,
    /// Another attempt, after so many microseconds at least and at most.
    Again(Option<(u64, u64)>),
}

/// How long an arrival waits, microseconds at least and at most, and what happens to it then.
fn decide(fault: &Fault, of_request: u64, of_process: u64, path: Draw, occurrence: u64) -> (Option<(u64, u64)>, Kind) {
    let meets = |when: &When, share: f64| {
        let before = if when.per_process { of_process } else { of_request };
        when.first.is_none_or(|first| before < first) && when.p.is_none_or(|p| share < p)
    };
    let wait = fault
        .delay
        .filter(|delay| meets(&delay.when, path.share_of_delay(occurrence)));
    let kind = if meets(&fault.when, path.share(occurrence)) {
        fault.kind
    } else {
        Kind::None
    };
    let wait = wait.map(|delay| (delay.ms * 1_000, (delay.ms + delay.jitter_ms) * 1_000));
    (wait.filter(|(_, most)| *most > 0), kind)
}
