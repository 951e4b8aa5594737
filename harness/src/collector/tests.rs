//! Over real sockets, with the generated client.

use super::*;
use crate::tally::RUN_ATTRIBUTE;
use opentelemetry_proto::tonic::{
    collector::trace::v1::trace_service_client::TraceServiceClient,
    common::v1::{AnyValue, KeyValue, any_value::Value},
    resource::v1::Resource,
    trace::v1::{ResourceSpans, ScopeSpans, Span, span::SpanKind},
};
use std::time::Instant;
use tokio::net::TcpStream;
use tonic::{Code, transport::Channel};

const RUN: &str = "run-1";
/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

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

fn span(trace: u64, id: u64) -> Span {
    Span {
        trace_id: u128::from(trace).to_be_bytes().to_vec(),
        span_id: id.to_be_bytes().to_vec(),
        name: "shop.v1.Inventory/GetStock".to_owned(),
        kind: SpanKind::Server as i32,
        attributes: vec![
            attribute("rpc.system.name", "grpc"),
            attribute("rpc.method", "shop.v1.Inventory/GetStock"),
        ],
        ..Span::default()
    }
}

fn batch(run: &str, spans: Vec<Span>) -> ExportTraceServiceRequest {
    let attributes = vec![attribute("service.name", "inventory"), attribute(RUN_ATTRIBUTE, run)];
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

/// `batches` batches of `size` spans, 40 spans to a trace.
fn batches(batches: u64, size: u64) -> impl Iterator<Item = ExportTraceServiceRequest> {
    (0..batches).map(move |nth| {
        batch(
            RUN,
            (nth * size + 1..=(nth + 1) * size)
                .map(|id| span(id / 40 + 1, id))
                .collect(),
        )
    })
}

async fn client(collector: &Collector) -> TraceServiceClient<Channel> {
    TraceServiceClient::connect(format!("http://{}", collector.address()))
        .await
        .unwrap()
        .max_encoding_message_size(usize::MAX)
}

fn inventory(spans: u64) -> [(String, u64); 1] {
    [("inventory".to_owned(), spans)]
}

fn forward_to(address: SocketAddr) -> Forward {
    Forward::to(&format!("http://{address}")).unwrap()
}

#[tokio::test]
async fn twenty_thousand_spans_arrive_plain_and_gzipped() {
    for compressed in [false, true] {
        let collector = Collector::start(RUN, None).unwrap();
        let mut client = client(&collector).await;
        if compressed {
            client = client.send_compressed(CompressionEncoding::Gzip);
        }
        for batch in batches(40, 500) {
            assert_eq!(client.export(batch).await.unwrap().into_inner().partial_success, None);
        }
        // Acknowledged is counted: nothing has to be waited for.
        assert_eq!(collector.progress(), inventory(20_000));
        let tally = collector.finish().await.unwrap().tally;
        assert_eq!(tally.server("inventory"), 20_000);
        assert_eq!(tally.traces, 501);
        assert_eq!(
            tally.per_request(2).into_iter().collect::<Vec<_>>(),
            [("inventory", 40)]
        );
    }
}

#[tokio::test]
async fn a_batch_sent_twice_counts_once() {
    let collector = Collector::start(RUN, None).unwrap();
    let mut client = client(&collector).await;
    for _ in 0..2 {
        client.export(batches(1, 500).next().unwrap()).await.unwrap();
    }
    let tally = collector.finish().await.unwrap().tally;
    assert_eq!(tally.services["inventory"].server, 500);
    assert_eq!(tally.services["inventory"].duplicates, 500);
}

#[tokio::test]
async fn refused_spans_are_named_and_the_rest_of_their_batch_counts() {
    let collector = Collector::start(RUN, None).unwrap();
    let answer = client(&collector)
        .await
        .export(batch(RUN, vec![span(0, 1), span(1, 1), span(1, 0)]))
        .await
        .unwrap();
    let partial = answer.into_inner().partial_success.unwrap();
    assert_eq!(partial.rejected_spans, 2);
    assert_eq!(
        partial.error_message,
        "trace id is all zero (1 spans); span id is all zero (1 spans)"
    );
    let tally = collector.finish().await.unwrap().tally;
    assert_eq!((tally.server("inventory"), tally.rejected), (1, 2));
}

#[tokio::test]
async fn a_batch_above_the_limit_is_refused_and_the_next_one_counts() {
    let collector = Collector::start(RUN, None).unwrap();
    let mut client = client(&collector).await;
    let huge = Span {
        name: "x".repeat(MAX_BATCH_BYTES),
        ..span(1, 1)
    };
    assert_eq!(
        client.export(batch(RUN, vec![huge.clone()])).await.unwrap_err().code(),
        Code::OutOfRange
    );
    let mut gzipped = client.clone().send_compressed(CompressionEncoding::Gzip);
    assert!(gzipped.export(batch(RUN, vec![huge])).await.is_err());
    let large = Span {
        name: "x".repeat(MAX_BATCH_BYTES - 4096),
        ..span(1, 2)
    };
    client.export(batch(RUN, vec![large])).await.unwrap();
    assert_eq!(collector.finish().await.unwrap().tally.server("inventory"), 1);
}

#[tokio::test]
async fn waiting_ends_with_the_span_that_was_waited_for() {
    let collector = Collector::start(RUN, None).unwrap();
    let mut client = client(&collector).await;
    assert!(collector.wait_for(&[], PATIENCE).await);
    assert!(collector.wait_for(&[("absent".to_owned(), 0)], PATIENCE).await);
    let wanted = inventory(1_500);
    let (reached, sent) = tokio::join!(collector.wait_for(&wanted, PATIENCE), async {
        for batch in batches(3, 500) {
            client.export(batch).await.unwrap();
        }
        Instant::now()
    });
    assert!(reached);
    assert!(sent.elapsed() < Duration::from_secs(1), "{:?}", sent.elapsed());
}

#[tokio::test]
async fn waiting_for_what_never_comes_ends_at_its_limit() {
    let collector = Collector::start(RUN, None).unwrap();
    client(&collector)
        .await
        .export(batches(1, 500).next().unwrap())
        .await
        .unwrap();
    let began = Instant::now();
    let limit = Duration::from_millis(200);
    assert!(!collector.wait_for(&inventory(501), limit).await);
    assert!(
        began.elapsed() >= limit && began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn silent_peers_do_not_hold_the_end() {
    let collector = Collector::start(RUN, None).unwrap();
    let silent = TcpStream::connect(collector.address()).await.unwrap();
    let mut idle = client(&collector).await;
    idle.export(batches(1, 500).next().unwrap()).await.unwrap();
    let began = Instant::now();
    // Were this thread blocked meanwhile, the other side would hardly get a turn.
    let mut turns = 0;
    let mut finish = pin!(collector.finish());
    let tally = loop {
        tokio::select! {
            collected = &mut finish => break collected.unwrap().tally,
            () = sleep(Duration::from_millis(10)) => turns += 1,
        }
    };
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    assert!(turns > 20, "{turns}");
    assert_eq!(tally.server("inventory"), 500);
    drop(silent);
}

#[tokio::test]
async fn a_collector_without_peers_ends_at_once_and_its_port_is_free() {
    let collector = Collector::start(RUN, None).unwrap();
    let address = collector.address();
    assert!(address.ip().is_loopback());
    let began = Instant::now();
    collector.finish().await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn a_dropped_collector_stops() {
    let collector = Collector::start(RUN, None).unwrap();
    // Its end is seen from inside: the server closes the connection that stands.
    let stream = TcpStream::connect(collector.address()).await.unwrap();
    drop(collector);
    let mut rest = [0; 256];
    let closed = timeout(PATIENCE, async {
        loop {
            stream.readable().await.unwrap();
            match stream.try_read(&mut rest) {
                Ok(0) => break,
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => break,
                _ => {}
            }
        }
    });
    closed.await.unwrap();
}

#[tokio::test]
async fn an_outside_collector_gets_every_span_foreign_ones_too() {
    let outside = Collector::start(RUN, None).unwrap();
    let collector = Collector::start(RUN, Some(forward_to(outside.address()))).unwrap();
    let mut client = client(&collector).await;
    for batch in batches(20, 500) {
        client.export(batch).await.unwrap();
    }
    client
        .export(batch("another", vec![span(1, 1), span(0, 1)]))
        .await
        .unwrap();
    let Collected { tally, forwarded } = collector.finish().await.unwrap();
    let forwarded = forwarded.unwrap();
    assert_eq!(
        (forwarded.forwarded, forwarded.dropped, forwarded.failed),
        (10_001, 0, 0)
    );
    assert_eq!(forwarded.first_error, None);
    assert_eq!(
        (tally.server("inventory"), tally.foreign, tally.rejected),
        (10_000, 1, 1)
    );
    let seen_outside = outside.finish().await.unwrap().tally;
    assert_eq!(
        (
            seen_outside.server("inventory"),
            seen_outside.foreign,
            seen_outside.rejected
        ),
        (10_000, 1, 0)
    );
}

#[tokio::test]
async fn an_absent_outside_collector_changes_no_count() {
    let nobody = {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.local_addr().unwrap()
    };
    let collector = Collector::start(RUN, Some(forward_to(nobody))).unwrap();
    let mut client = client(&collector).await;
    for batch in batches(20, 500) {
        client.export(batch).await.unwrap();
    }
    let Collected { tally, forwarded } = collector.finish().await.unwrap();
    assert_eq!(tally.server("inventory"), 10_000);
    let forwarded = forwarded.unwrap();
    assert_eq!((forwarded.forwarded, forwarded.dropped + forwarded.failed), (0, 10_000));
    let error = forwarded.first_error.unwrap();
    assert!(error.starts_with(&format!("http://{nobody}: Unavailable")), "{error}");
    assert!(error.contains("refused"), "{error}");
}

#[tokio::test]
async fn an_outside_collector_that_never_answers_changes_no_count_and_holds_nothing_up() {
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let collector = Collector::start(RUN, Some(forward_to(silent.local_addr().unwrap()))).unwrap();
    let mut client = client(&collector).await;
    for batch in batches(200, 500) {
        client.export(batch).await.unwrap();
    }
    drop(client);
    let began = Instant::now();
    let Collected { tally, forwarded } = collector.finish().await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    assert_eq!(tally.server("inventory"), 100_000);
    let forwarded = forwarded.unwrap();
    assert_eq!(forwarded.forwarded, 0);
    assert_eq!(forwarded.dropped + forwarded.failed, 100_000);
    // The queue holds 65,536 spans, so at least the rest could not wait.
    assert!(
        forwarded.dropped >= 100_000 - crate::forward::QUEUE_SPANS - 1_000,
        "{forwarded:?}"
    );
    assert!(forwarded.first_error.unwrap().contains("no answer within"));
}
