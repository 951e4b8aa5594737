//! The single arrivals that are kept, whole requests at a time. An overflow gives up the oldest requests and touches no total.

use super::Outcome;
use crate::call::FOREIGN;
use std::collections::{HashMap, VecDeque};

/// One arrival, as kept for receipts.
#[derive(Debug, Clone)]
pub struct Record {
    /// The request's number.
    pub request: u64,
    /// Attempts at the layers above: `1.3.2`.
    pub path: String,
    /// `grpc-previous-rpc-attempts` + 1.
    pub attempt: u32,
    /// `x-envoy-attempt-count`; 0 where it was not there.
    pub envoy_attempt: u32,
    /// Microseconds of the machine's monotonic clock.
    pub start_us: u64,
    /// Microseconds and outcome; `None` while in flight.
    pub end: Option<(u64, Outcome)>,
    /// The settings in force when it arrived.
    pub generation: u64,
}

/// Where a record is kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    request: u64,
    index: usize,
}

/// The store.
#[derive(Debug, Default)]
pub(super) struct Records {
    by_request: HashMap<u64, Vec<Record>>,
    /// Requests by their first arrival, for giving up the oldest first.
    order: VecDeque<u64>,
    kept: usize,
    limit: usize,
    /// Records given up.
    pub(super) lost: u64,
    /// The highest request number of which a record was given up.
    pub(super) given_up_through: u64,
}

impl Records {
    /// An empty store of so many records.
    pub(super) fn of(limit: usize) -> Self {
        Self {
            limit,
            ..Self::default()
        }
    }

    /// Keeps a record, giving up the oldest request when the store is full. `None` when this one is not kept: its request has
    /// been given up before, or there is no room at all.
    pub(super) fn keep(&mut self, record: Record) -> Option<Place> {
        let request = record.request;
        let is_new = !self.by_request.contains_key(&request);
        // Requests number upwards. One at or below the mark may be a request whose earlier arrivals are gone: half a request
        // is never kept.
        if self.limit == 0 || (is_new && request <= self.given_up_through) {
            self.give_up(request, 1);
            return None;
        }
        while self.kept >= self.limit {
            let Some(oldest) = self.order.pop_front() else { break };
            let lost = self.by_request.remove(&oldest).map_or(0, |records| records.len());
            self.kept -= lost;
            self.give_up(oldest, lost as u64);
        }
        if !self.by_request.contains_key(&request) {
            if request <= self.given_up_through {
                self.give_up(request, 1);
                return None;
            }
            self.order.push_back(request);
        }
        let records = self.by_request.entry(request).or_default();
        records.push(record);
        self.kept += 1;
        Some(Place {
            request,
            index: records.len() - 1,
        })
    }

    fn give_up(&mut self, request: u64, records: u64) {
        self.lost += records;
        if request < FOREIGN {
            self.given_up_through = self.given_up_through.max(request);
        }
    }

    /// Notes how an arrival ended.
    pub(super) fn end(&mut self, place: Place, duration_us: u64, outcome: Outcome) {
        if let Some(records) = self.by_request.get_mut(&place.request)
            && let Some(record) = records.get_mut(place.index)
        {
            record.end = Some((duration_us, outcome));
        }
    }

    /// A copy of the records of these requests, lowest number first.
    pub(super) fn of_requests(&self, wanted: impl Fn(u64) -> bool) -> Vec<Record> {
        let mut requests: Vec<_> = self
            .by_request
            .iter()
            .filter(|(request, _)| wanted(**request))
            .collect();
        requests.sort_by_key(|(request, _)| **request);
        requests
            .into_iter()
            .flat_map(|(_, records)| records.iter().cloned())
            .collect()
    }
}
