//! Batches made by hand, counts known beforehand.

use super::*;
use opentelemetry_proto::tonic::{
    common::v1::{AnyValue, KeyValue, any_value::Value},
    trace::v1::{ResourceSpans, ScopeSpans, span::SpanKind},
};
use rand::{SeedableRng, rngs::StdRng, seq::SliceRandom};

fn attribute(key: &str, text: &str) -> KeyValue {
    let value = Some(AnyValue {
        value: Some(Value::StringValue(text.to_owned())),
    });
    KeyValue {
        key: key.to_owned(),
        value,
        ..KeyValue::default()
    }
}

fn span(trace: u128, id: u64, parent: u64, kind: SpanKind) -> Span {
    Span {
        trace_id: trace.to_be_bytes().to_vec(),
        span_id: id.to_be_bytes().to_vec(),
        parent_span_id: if parent == 0 {
            Vec::new()
        } else {
            parent.to_be_bytes().to_vec()
        },
        name: "shop.v1.Inventory/GetStock".to_owned(),
        kind: kind as i32,
        start_time_unix_nano: 10,
        end_time_unix_nano: 20,
        ..Span::default()
    }
}

fn server(trace: u128, id: u64, parent: u64) -> Span {
    span(trace, id, parent, SpanKind::Server)
}

fn batch_of(attributes: Vec<KeyValue>, spans: Vec<Span>) -> ExportTraceServiceRequest {
    let resource = Some(Resource {
        attributes,
        ..Resource::default()
    });
    let scope_spans = vec![ScopeSpans {
        spans,
        ..ScopeSpans::default()
    }];
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource,
            scope_spans,
            ..ResourceSpans::default()
        }],
    }
}

fn batch(service: &str, spans: Vec<Span>) -> ExportTraceServiceRequest {
    batch_of(
        vec![attribute(SERVICE_ATTRIBUTE, service), attribute(RUN_ATTRIBUTE, "run-1")],
        spans,
    )
}

fn tally_of(batches: &[ExportTraceServiceRequest]) -> Tally {
    let mut intake = Intake::new("run-1");
    for batch in batches {
        intake.ingest(batch);
    }
    intake.finish()
}

/// One request through three attempts at each of three hops, as the services export it: 40 arrivals, 39 attempts, 13
/// calls.
fn headline(trace: u128) -> Vec<ExportTraceServiceRequest> {
    const CHAIN: [&str; 4] = ["frontend", "checkout", "pricing", "inventory"];
    let mut spans: [Vec<Span>; 4] = Default::default();
    let mut id = 1;
    spans[0].push(server(trace, id, 0));
    let mut arrivals = vec![id];
    for hop in 1..CHAIN.len() {
        for arrival in std::mem::take(&mut arrivals) {
            let call = id + 1;
            spans[hop - 1].push(span(trace, call, arrival, SpanKind::Internal));
            for attempt in [call + 1, call + 3, call + 5] {
                spans[hop - 1].push(span(trace, attempt, call, SpanKind::Client));
                spans[hop].push(server(trace, attempt + 1, attempt));
                arrivals.push(attempt + 1);
            }
            id = call + 6;
        }
    }
    CHAIN
        .iter()
        .zip(spans)
        .flat_map(|(service, spans)| spans.into_iter().map(|span| batch(service, vec![span])))
        .collect()
}

#[test]
fn the_headline_counts_1_3_9_27() {
    let tally = tally_of(&headline(7));
    let counts = tally.per_request(7);
    assert_eq!(
        counts,
        BTreeMap::from([("frontend", 1), ("checkout", 3), ("pricing", 9), ("inventory", 27)])
    );
    let sum = |of: fn(&ServiceTally) -> u64| tally.services.values().map(of).sum::<u64>();
    assert_eq!(
        (sum(|s| s.server), sum(|s| s.client), sum(|s| s.internal)),
        (40, 39, 13)
    );
    assert_eq!(sum(|s| s.orphans + s.duplicates + s.conflicts + s.other), 0);
    assert_eq!(tally.traces, 1);
    assert_eq!(tally.server("inventory"), 27);
    assert_eq!(tally.server("nobody"), 0);
}

#[test]
fn the_order_of_arrival_never_matters() {
    let mut batches: Vec<_> = (1..=20).flat_map(headline).collect();
    let again = batches[17].clone();
    batches.extend([again.clone(), again]);
    // One span in three versions, of two services, one of them sent twice.
    for (service, name) in [("pricing", "a"), ("pricing", "b"), ("checkout", "c"), ("checkout", "c")] {
        batches.push(batch(
            service,
            vec![Span {
                name: name.to_owned(),
                ..server(99, 1, 0)
            }],
        ));
    }
    batches.push(batch(
        "pricing",
        vec![
            Span {
                end_time_unix_nano: 1,
                ..server(98, 1, 55)
            },
            server(0, 1, 0),
        ],
    ));
    batches.push(batch_of(
        vec![attribute(SERVICE_ATTRIBUTE, "pricing")],
        vec![server(97, 1, 0)],
    ));
    let expected = tally_of(&batches);
    let sum = |of: fn(&ServiceTally) -> u64| expected.services.values().map(of).sum::<u64>();
    assert_eq!(sum(|s| s.duplicates), 3);
    assert_eq!(sum(|s| s.conflicts), 2);
    assert_eq!(sum(|s| s.orphans), 1);
    assert_eq!(expected.clock_went_back, 1);
    assert_eq!(expected.named_conflicts.len(), 2);
    let mut chance = StdRng::seed_from_u64(27);
    for _ in 0..50 {
        batches.shuffle(&mut chance);
        assert_eq!(tally_of(&batches), expected);
    }
}

#[test]
fn a_second_copy_is_a_duplicate_and_changes_no_count() {
    let batches = headline(7);
    let twice: Vec<_> = batches.iter().chain(&batches).cloned().collect();
    let (once, twice) = (tally_of(&batches), tally_of(&twice));
    for (service, tally) in &once.services {
        let expected = ServiceTally {
            duplicates: tally.distinct(),
            ..*tally
        };
        assert_eq!(twice.services[service], expected, "{service}");
    }
    assert_eq!(once.per_request(7), twice.per_request(7));
}

#[test]
fn attributes_in_another_order_are_the_same_content() {
    let (a, b) = (attribute("a", "1"), attribute("b", "2"));
    let first = Span {
        attributes: vec![a.clone(), b.clone()],
        ..server(7, 1, 0)
    };
    let second = Span {
        attributes: vec![b, a],
        ..server(7, 1, 0)
    };
    let tally = tally_of(&[batch("inventory", vec![first, second])]).services["inventory"];
    assert_eq!((tally.server, tally.duplicates, tally.conflicts), (1, 1, 0));
}

#[test]
fn same_ids_with_other_content_are_a_named_conflict() {
    let original = server(7, 1, 0);
    let with_status = |code| {
        Some(opentelemetry_proto::tonic::trace::v1::Status {
            code,
            ..Default::default()
        })
    };
    let others = [
        Span {
            name: "other".to_owned(),
            ..original.clone()
        },
        Span {
            kind: SpanKind::Client as i32,
            ..original.clone()
        },
        Span {
            parent_span_id: vec![0, 0, 0, 0, 0, 0, 0, 9],
            ..original.clone()
        },
        Span {
            start_time_unix_nano: 11,
            ..original.clone()
        },
        Span {
            end_time_unix_nano: 21,
            ..original.clone()
        },
        Span {
            status: with_status(2),
            ..original.clone()
        },
        Span {
            attributes: vec![attribute("a", "1")],
            ..original.clone()
        },
    ];
    for other in others {
        let tally = tally_of(&[batch("inventory", vec![original.clone(), other.clone()])]);
        let inventory = tally.services["inventory"];
        assert_eq!(
            (inventory.distinct(), inventory.duplicates, inventory.conflicts),
            (1, 0, 1),
            "{other:?}"
        );
        let both = "inventory".to_owned();
        assert_eq!(
            tally.named_conflicts,
            [Conflict {
                trace: 7,
                span: 1,
                counted: both.clone(),
                refused: both
            }]
        );
    }
}

#[test]
fn the_same_span_from_two_services_is_a_conflict() {
    let tally = tally_of(&[
        batch("pricing", vec![server(7, 1, 0)]),
        batch("checkout", vec![server(7, 1, 0)]),
    ]);
    assert_eq!((tally.server("checkout"), tally.server("pricing")), (1, 0));
    assert_eq!(tally.services["pricing"].conflicts, 1);
    assert_eq!(tally.named_conflicts[0].refused, "pricing");
}

#[test]
fn the_same_span_id_in_two_traces_is_two_spans() {
    let tally = tally_of(&[batch("inventory", vec![server(7, 1, 0), server(8, 1, 0)])]);
    assert_eq!((tally.server("inventory"), tally.traces), (2, 2));
    assert_eq!(tally.services["inventory"].duplicates, 0);
}

#[test]
fn a_parent_that_was_not_collected_makes_an_orphan() {
    let child_of_another_trace = server(8, 3, 1);
    let own_parent = server(7, 4, 4);
    let malformed = Span {
        parent_span_id: vec![1; 5],
        ..server(7, 5, 0)
    };
    let zero_parent = Span {
        parent_span_id: vec![0; 8],
        ..server(7, 6, 0)
    };
    let spans = vec![
        server(7, 2, 1),
        child_of_another_trace,
        own_parent,
        malformed,
        zero_parent,
        server(7, 1, 0),
    ];
    let tally = tally_of(&[batch("inventory", spans)]).services["inventory"];
    assert_eq!((tally.server, tally.orphans), (6, 3));
}

#[test]
fn zero_and_short_ids_are_refused_and_the_rest_is_kept() {
    let mut spans = vec![server(0, 1, 0), server(7, 0, 0), server(7, 1, 0), server(0, 2, 0)];
    spans.push(Span {
        trace_id: vec![1; 15],
        ..server(7, 2, 0)
    });
    spans.push(Span {
        span_id: vec![1; 9],
        ..server(7, 2, 0)
    });
    spans.push(Span {
        span_id: Vec::new(),
        ..server(7, 2, 0)
    });
    let mut intake = Intake::new("run-1");
    let ingested = intake.ingest(&batch("inventory", spans));
    assert_eq!((ingested.accepted, ingested.rejected), (1, 6));
    assert_eq!(
        ingested.reason,
        "trace id is not 16 bytes long (1 spans); trace id is all zero (2 spans); span id is not 8 bytes long (2 spans); \
         span id is all zero (1 spans)"
    );
    let tally = intake.finish();
    assert_eq!((tally.rejected, tally.server("inventory"), tally.traces), (6, 1, 1));
}

#[test]
fn foreign_and_unnamed_spans_are_counted_apart() {
    let (ours, others) = (attribute(RUN_ATTRIBUTE, "run-1"), attribute(RUN_ATTRIBUTE, "run-2"));
    let named = attribute(SERVICE_ATTRIBUTE, "inventory");
    let number = KeyValue {
        value: Some(AnyValue {
            value: Some(Value::IntValue(1)),
        }),
        ..named.clone()
    };
    let long = attribute(SERVICE_ATTRIBUTE, &"x".repeat(MAX_SERVICE_NAME + 1));
    let one = || vec![server(7, 1, 0)];
    let foreign = [vec![named.clone()], vec![named, others.clone()], vec![others]];
    let unnamed = [vec![], vec![ours.clone()], vec![ours.clone(), number], vec![ours, long]];
    let batches: Vec<_> = foreign
        .into_iter()
        .chain(unnamed)
        .map(|attributes| batch_of(attributes, one()))
        .collect();
    let tally = tally_of(&batches);
    assert_eq!((tally.foreign, tally.unnamed, tally.traces), (3, 4, 0));
    assert!(tally.services.is_empty());
}

#[test]
fn a_clock_that_went_back_changes_no_other_count() {
    let tally = tally_of(&[batch(
        "inventory",
        vec![Span {
            end_time_unix_nano: 9,
            ..server(7, 1, 0)
        }],
    )]);
    assert_eq!((tally.clock_went_back, tally.server("inventory")), (1, 1));
}

#[test]
fn a_full_tally_says_so_and_still_knows_what_it_has() {
    let mut intake = Intake {
        max_spans: 2,
        ..Intake::new("run-1")
    };
    let ingested = intake.ingest(&batch("inventory", (1..=5).map(|id| server(7, id, 0)).collect()));
    assert_eq!((ingested.accepted, ingested.rejected), (5, 0));
    assert_eq!(ingested.reason, "the tally is full: 3 spans not held");
    intake.ingest(&batch("inventory", vec![server(7, 1, 0)]));
    let tally = intake.finish();
    assert_eq!((tally.overflowed, tally.server("inventory")), (3, 2));
    assert_eq!(tally.services["inventory"].duplicates, 1);

    let many: Vec<_> = (1..=300)
        .map(|n| batch(&format!("service-{n}"), vec![server(7, n, 0)]))
        .collect();
    let tally = tally_of(&many);
    assert_eq!(
        (tally.services.len(), tally.overflowed),
        (MAX_SERVICES, 300 - MAX_SERVICES as u64)
    );
}

#[test]
fn every_attribute_kind_is_read_and_none_is_kept() {
    use opentelemetry_proto::tonic::common::v1::{ArrayValue, KeyValueList};
    let value = |value| AnyValue { value: Some(value) };
    let list = KeyValueList {
        values: vec![attribute("k", "v")],
    };
    let values = [
        Value::BoolValue(true),
        Value::IntValue(-1),
        Value::DoubleValue(f64::NAN),
        Value::BytesValue(vec![0; 1024]),
        Value::ArrayValue(ArrayValue {
            values: vec![value(Value::IntValue(1)), AnyValue::default()],
        }),
        Value::KvlistValue(list),
        Value::StringValueStrindex(3),
    ];
    let kinds: Vec<_> = values
        .map(|kind| KeyValue {
            value: Some(value(kind)),
            ..attribute("a", "")
        })
        .into();
    let many = (0..10_000).map(|n| attribute(&n.to_string(), "x"));
    let wide = Span {
        attributes: kinds.into_iter().chain(many).collect(),
        ..server(7, 1, 0)
    };
    let tally = tally_of(&[batch("inventory", vec![wide.clone(), wide])]).services["inventory"];
    assert_eq!((tally.server, tally.duplicates, tally.conflicts), (1, 1, 0));
}

#[test]
fn requests_are_told_apart_by_trace_id() {
    let batches: Vec<_> = [5, u128::MAX, 3].into_iter().flat_map(headline).collect();
    let tally = tally_of(&batches);
    let requests: Vec<_> = tally.requests().collect();
    assert_eq!(
        requests.iter().map(|(trace, _)| *trace).collect::<Vec<_>>(),
        [3, 5, u128::MAX]
    );
    for (_, counts) in requests {
        assert_eq!(counts["inventory"], 27);
    }
    assert!(tally.per_request(4).is_empty());
}
