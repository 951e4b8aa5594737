//! SERVER spans by request and service, packed: 20 bytes for each request and 8 for each service in it.

use std::collections::{BTreeMap, HashMap};

/// Counts by request, ordered by trace id. The counts of `traces[i]` begin at `starts[i]` and end where the next begin.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Requests {
    /// Services, ordered; `counts` holds places in it.
    names: Vec<String>,
    traces: Vec<u128>,
    starts: Vec<u32>,
    counts: Vec<(u16, u32)>,
}

impl Requests {
    /// Packs counts by (place in `traces`, place in `names`). Neither list need be ordered.
    pub(super) fn pack(names: &[String], mut traces: Vec<u128>, arrivals: &HashMap<(u32, u16), u32>) -> Self {
        let mut ordered = names.to_vec();
        ordered.sort_unstable();
        let place_of = |name: &String| ordered.binary_search(name).expect("made of the same names");
        let places: Vec<u16> = names
            .iter()
            .map(|name| u16::try_from(place_of(name)).expect("MAX_SERVICES fits"))
            .collect();
        let mut rows: Vec<(u128, u16, u32)> = arrivals
            .iter()
            .map(|((trace, service), count)| (traces[*trace as usize], places[usize::from(*service)], *count))
            .collect();
        rows.sort_unstable();
        traces.sort_unstable();
        let mut starts = Vec::with_capacity(traces.len());
        let mut counts = Vec::with_capacity(rows.len());
        let mut rows = rows.into_iter().peekable();
        for trace in &traces {
            starts.push(u32::try_from(counts.len()).expect("there are no more rows than spans"));
            while let Some((_, service, count)) = rows.next_if(|row| row.0 == *trace) {
                counts.push((service, count));
            }
        }
        Self {
            names: ordered,
            traces,
            starts,
            counts,
        }
    }

    /// One request; empty for a trace that was never seen.
    pub(super) fn of(&self, trace: u128) -> BTreeMap<&str, u64> {
        self.traces
            .binary_search(&trace)
            .map_or_else(|_| BTreeMap::new(), |row| self.row(row))
    }

    /// Every request, ordered by trace id.
    pub(super) fn all(&self) -> impl Iterator<Item = (u128, BTreeMap<&str, u64>)> {
        self.traces
            .iter()
            .enumerate()
            .map(|(row, trace)| (*trace, self.row(row)))
    }

    fn row(&self, row: usize) -> BTreeMap<&str, u64> {
        let from = self.starts[row] as usize;
        let to = self
            .starts
            .get(row + 1)
            .map_or(self.counts.len(), |next| *next as usize);
        let name = |service: u16| self.names[usize::from(service)].as_str();
        self.counts[from..to]
            .iter()
            .map(|(service, count)| (name(*service), u64::from(*count)))
            .collect()
    }
}
