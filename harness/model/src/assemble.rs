//! From a flat row of counts to a prediction with names.

use crate::chain::{Chain, Layout, What};
use crate::chance::Moment;
use crate::count::Count;
use crate::exact::Exact;
use crate::prediction::{
    Binds, Kind, Limit, LinkPrediction, PerRequest, Predicted, Prediction, ServicePrediction, Solved,
};
use crate::topology::{Code, Topology};

/// What a room found out.
pub(crate) struct Answer {
    pub(crate) layout: Layout,
    pub(crate) totals: Vec<Predicted>,
    pub(crate) per_request: PerRequest,
}

impl Answer {
    pub(crate) fn from_exact(chain: &Chain, exact: &Exact) -> Self {
        let layout = &chain.layout;
        let exactly = |count: &Count| Predicted::between(*count, *count, Kind::Exact);
        let totals: Vec<Predicted> = exact.totals.iter().map(exactly).collect();
        let share = |slot: usize| share(totals[slot].mean, chain.requests);
        let per_request = PerRequest {
            worst: layout.bottom().map_or(Count::ZERO, |bottom| exact.most[bottom]),
            mean: layout.bottom().and_then(share),
            sd: if exact.uniform {
                layout.bottom().and_then(|bottom| totals[bottom].sd)
            } else {
                None
            },
            still_fails: failing(layout, share),
            arrivals_worst: exact.most[layout.arrivals()],
        };
        Self {
            layout: layout.clone(),
            totals,
            per_request,
        }
    }

    pub(crate) fn from_moments(chain: &Chain, total: &[Moment], one: &[Moment]) -> Self {
        let layout = &chain.layout;
        let statistical = |moment: &Moment| Predicted {
            kind: Kind::Statistical,
            mean: Some(moment.mean),
            sd: Some(moment.variance.max(0.0).sqrt()),
            min: moment.min,
            max: moment.max,
        };
        let totals: Vec<Predicted> = total.iter().map(statistical).collect();
        let alike = chain.process_counters().is_empty();
        let mean = |slot: usize| {
            if alike {
                Some(one[slot].mean)
            } else {
                share(totals[slot].mean, chain.requests)
            }
        };
        let per_request = PerRequest {
            mean: layout.bottom().and_then(mean),
            sd: layout
                .bottom()
                .filter(|_| alike)
                .map(|bottom| one[bottom].variance.max(0.0).sqrt()),
            still_fails: failing(layout, mean),
            ..worst(chain, one)
        };
        Self {
            layout: layout.clone(),
            totals,
            per_request,
        }
    }

    /// From what one request can do at least and at most.
    pub(crate) fn from_extent(chain: &Chain, one: &[Moment], kind: Kind) -> Self {
        let total = |moment: &Moment| {
            let total = moment.times(chain.requests);
            Predicted {
                kind,
                mean: None,
                sd: None,
                min: total.min,
                max: total.max,
            }
        };
        let totals = one.iter().map(total).collect();
        Self {
            layout: chain.layout.clone(),
            totals,
            per_request: worst(chain, one),
        }
    }

    /// Puts the counts of a replay in place of what is possible at all; mean and deviation stay.
    pub(crate) fn replace_by(&mut self, counts: &[u64]) {
        for (predicted, count) in self.totals.iter_mut().zip(counts) {
            predicted.kind = Kind::Exact;
            predicted.min = (*count).into();
            predicted.max = (*count).into();
        }
    }
}

/// What is known of a request of which only the extent is known.
fn worst(chain: &Chain, one: &[Moment]) -> PerRequest {
    PerRequest {
        worst: chain.layout.bottom().map_or(Count::ZERO, |bottom| one[bottom].max),
        mean: None,
        sd: None,
        still_fails: None,
        arrivals_worst: one[chain.layout.arrivals()].max,
    }
}

/// One request's part of a total.
pub(crate) fn share(total: Option<f64>, requests: u64) -> Option<f64> {
    total.filter(|_| requests > 0).map(|total| total / requests as f64)
}

/// The chance of all failures together.
pub(crate) fn failing(layout: &Layout, mean: impl Fn(usize) -> Option<f64>) -> Option<f64> {
    layout
        .codes
        .iter()
        .filter(|code| code.is_failure())
        .map(|code| mean(layout.ended(*code)))
        .sum::<Option<f64>>()
        // A sum of nothing is -0.0, which no reader wants to see.
        .map(|chance| chance + 0.0)
}

/// Names the counts.
pub(crate) fn assemble(topology: &Topology, solved: Solved) -> Prediction {
    let refuses_all = solved.refuses_all;
    let Answer {
        layout,
        totals,
        per_request,
    } = solved.answer;
    let limit = |(caller, binds): (&crate::Caller, Option<Binds>)| {
        binds.map(|binds| Limit {
            caller: caller.name.clone(),
            binds: match binds {
                Binds::No => Some(false),
                Binds::Yes => Some(true),
                Binds::Depends => None,
            },
        })
    };
    let service = |(hop, service): (usize, &crate::Service)| ServicePrediction {
        name: service.name.clone(),
        received: totals[layout.at(hop, What::Received)],
        work_done: totals[layout.at(hop, What::WorkDone)],
        unanswered: totals[layout.at(hop, What::Unanswered)],
    };
    let pairs = topology.callers.iter().zip(&topology.services).enumerate();
    let link = |(hop, (caller, service)): (usize, (&crate::Caller, &crate::Service))| LinkPrediction {
        from: caller.name.clone(),
        to: service.name.clone(),
        calls: totals[layout.at(hop, What::Calls)],
        sent: totals[layout.at(hop, What::Sent)],
        lost: totals[layout.at(hop, What::Lost)],
        cut: totals[layout.at(hop, What::Cut)],
        out_of_time: totals[layout.at(hop, What::OutOfTime)],
        refuses_all: refuses_all[hop],
    };
    let arrivals = totals[layout.arrivals()];
    let failures = layout.codes.iter().filter(|code| code.is_failure());
    Prediction {
        requests: topology.load.requests,
        services: topology
            .services
            .iter()
            .take(topology.callers.len())
            .enumerate()
            .map(service)
            .collect(),
        links: pairs.map(link).collect(),
        ok: totals[layout.ended(Code::OK)],
        failed_by_code: failures
            .map(|code| (*code, totals[layout.ended(*code)]))
            .filter(|(_, predicted)| predicted.max > Count::ZERO)
            .collect(),
        per_request,
        total_arrivals: match arrivals.mean {
            Some(mean) if arrivals.sd.is_some_and(|sd| sd > 0.0) => Count::rounded_up(mean),
            _ => arrivals.max,
        },
        margin_us: solved.margin_us,
        is_floor_and_ceiling: !solved.is_followed,
        limits: topology.callers.iter().zip(solved.binds).filter_map(limit).collect(),
    }
}
