//! Damaged evidence: whatever is lost, doubled, killed, stopped, reset or added, the verdict is never `as_predicted`; and what
//! nobody sent is `not_as_predicted`. Five hundred healthy runs, on the other hand, are never `incomplete`.

use crate::support::{block_on, check, harness, run, test};
use chassis::address::Address;
use harness::{
    fleet::Fleet,
    report::{Report, Verdict},
    run::{Hook, Hooks, Options, run as run_scenario},
    scenario::{Overrides, Scenario},
};
use libtest_mimic::{Failed, Trial};
use opentelemetry_proto::tonic::{
    collector::trace::v1::{
        ExportTraceServiceRequest, ExportTraceServiceResponse,
        trace_service_client::TraceServiceClient,
        trace_service_server::{TraceService, TraceServiceServer},
    },
    trace::v1::span::SpanKind,
};
use proto::{
    lab::v1::{self as lab, control_client::ControlClient, control_server, ledger_client::LedgerClient, ledger_server},
    shop::v1::{GetStockRequest, inventory_client::InventoryClient},
};
use std::{
    net::SocketAddr,
    pin::Pin,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::watch;
use tokio_stream::Stream;
use tonic::{
    Request, Response, Status,
    transport::{Channel, Server, server::TcpIncoming},
};

/// Healthy runs.
const HEALTHY: u32 = 500;

pub fn tests() -> Vec<Trial> {
    vec![
        test("damage::one_span_dropped_is_incomplete", || {
            let report = damaged(
                &[],
                Hooks {
                    collector: Some(relay(Tamper::DropOne)),
                    ..Hooks::default()
                },
            )?;
            verdict(&report, Verdict::Incomplete, "missing_spans")?;
            let inventory = report.services.last().ok_or("no services")?;
            check((inventory.received, inventory.traced) == (Some(27), Some(26)), || {
                format!("{inventory:?}")
            })
        }),
        test(
            "damage::a_batch_delivered_twice_changes_no_count_and_is_incomplete",
            || {
                let report = damaged(
                    &[],
                    Hooks {
                        collector: Some(relay(Tamper::Twice)),
                        ..Hooks::default()
                    },
                )?;
                verdict(&report, Verdict::Incomplete, "duplicate_spans")?;
                let traced: Vec<_> = report.services.iter().filter_map(|service| service.traced).collect();
                check(traced == [1, 3, 9, 27], || format!("{traced:?}"))
            },
        ),
        test("damage::a_child_killed_before_the_first_request_is_incomplete", || {
            let report = damaged(
                &[],
                Hooks {
                    started: Some(signal("KILL", 3)),
                    ..Hooks::default()
                },
            )?;
            verdict(&report, Verdict::Incomplete, "process_died")
        }),
        test("damage::a_child_killed_in_the_middle_is_incomplete", || {
            for position in 0..4 {
                let hook = later(Duration::from_millis(60), "KILL", position);
                let report = damaged(
                    &["load.requests=3000", "load.concurrency=20"],
                    Hooks {
                        started: Some(hook),
                        ..Hooks::default()
                    },
                )?;
                verdict(&report, Verdict::Incomplete, "process_died")?;
            }
            Ok(())
        }),
        test("damage::a_child_killed_after_the_last_request_is_incomplete", || {
            let report = damaged(
                &[],
                Hooks {
                    loaded: Some(signal("KILL", 2)),
                    ..Hooks::default()
                },
            )?;
            verdict(&report, Verdict::Incomplete, "process_died")
        }),
        test("damage::a_child_stopped_is_incomplete_in_bounded_time", || {
            let began = std::time::Instant::now();
            let report = damaged(
                &[],
                Hooks {
                    started: Some(signal("STOP", 1)),
                    ..Hooks::default()
                },
            )?;
            verdict(&report, Verdict::Incomplete, "process_stopped")?;
            check(began.elapsed() < Duration::from_secs(30), || {
                format!("it took {:?}", began.elapsed())
            })
        }),
        test("damage::totals_that_go_back_are_incomplete", || {
            let report = damaged(
                &[],
                Hooks {
                    loaded: Some(forgetful_ledger(3)),
                    ..Hooks::default()
                },
            )?;
            verdict(&report, Verdict::Incomplete, "totals_went_back")
        }),
        test("damage::an_arrival_that_nobody_sent_is_not_as_predicted", || {
            for (path, reason) in [(None, "strangers"), (Some("1:1.1.1.1"), "link_surplus")] {
                let report = damaged(
                    &[],
                    Hooks {
                        started: Some(stranger(path)),
                        ..Hooks::default()
                    },
                )?;
                verdict(&report, Verdict::NotAsPredicted, reason)?;
                let inventory = report.services.last().ok_or("no services")?;
                check(inventory.received == Some(28), || format!("{inventory:?}"))?;
            }
            Ok(())
        }),
        test("damage::a_surplus_is_found_together_with_a_lost_span", || {
            let hooks = Hooks {
                started: Some(stranger(None)),
                collector: Some(relay(Tamper::DropOne)),
                ..Hooks::default()
            };
            let report = damaged(&[], hooks)?;
            verdict(&report, Verdict::NotAsPredicted, "strangers")?;
            verdict(&report, Verdict::NotAsPredicted, "missing_spans")
        }),
        test("damage::a_collector_that_is_gone_is_incomplete", || {
            let nowhere: Box<dyn FnOnce(SocketAddr) -> SocketAddr> =
                Box::new(|_| SocketAddr::from(([127, 0, 0, 1], 9)));
            let report = damaged(
                &[],
                Hooks {
                    collector: Some(nowhere),
                    ..Hooks::default()
                },
            )?;
            verdict(&report, Verdict::Incomplete, "missing_spans")
        }),
        test("damage::five_hundred_healthy_runs_are_never_incomplete", || {
            let faults = ["fail", "none", "fail:first=2", "fail:p=0.5", "refuse"];
            for round in 0..HEALTHY {
                let ran = run(&[
                    "run",
                    "--fault",
                    faults[round as usize % faults.len()],
                    "-n",
                    "3",
                    "-c",
                    "3",
                ]);
                let reasons = ran.json.as_ref().map(|report| report["reasons"].to_string());
                check(ran.exit == 0, || {
                    format!("run {round}: exit {} {reasons:?} {}", ran.exit, ran.stderr)
                })?;
            }
            Ok(())
        }),
    ]
}

/// Runs `per-hop` with these settings and the damage.
pub fn damaged(set: &[&str], hooks: Hooks) -> Result<Report, Failed> {
    let set = set.iter().map(|setting| (*setting).to_owned()).collect();
    let scenario = Scenario::load(
        None,
        &Overrides {
            set,
            ..Overrides::default()
        },
    )?;
    let (_interrupt, interrupted) = watch::channel(false);
    let options = Options {
        program: harness(),
        max_calls: u64::MAX,
        forward: None,
        expectations: Vec::new(),
        interrupt: interrupted,
        progress: watch::channel(0).0,
        hooks,
        attached: None,
        viewer: None,
    };
    Ok(block_on(run_scenario(&scenario, options))?.report)
}

fn verdict(report: &Report, wanted: Verdict, reason: &str) -> Result<(), Failed> {
    let has_reason = report.reasons.iter().any(|given| given.kind == reason);
    check(report.verdict == wanted && has_reason, || {
        format!("{:?} for {:?}", report.verdict, report.reasons)
    })
}

/// Sends a signal to the service at a position, at once.
fn signal(name: &'static str, position: usize) -> Hook {
    Box::new(move |fleet: &mut Fleet| {
        let pid = fleet.members[position].pid;
        Box::pin(async move { kill(name, pid) })
    })
}

/// Sends a signal to the service at a position, a moment later.
fn later(after: Duration, name: &'static str, position: usize) -> Hook {
    Box::new(move |fleet: &mut Fleet| {
        let pid = fleet.members[position].pid;
        std::thread::spawn(move || {
            std::thread::sleep(after);
            kill(name, pid);
        });
        Box::pin(std::future::ready(()))
    })
}

fn kill(name: &str, pid: u32) {
    let status = std::process::Command::new("kill")
        .args([format!("-{name}"), pid.to_string()])
        .status();
    assert!(status.is_ok_and(|status| status.success()), "kill -{name} {pid}");
}

/// One more arrival at inventory, sent by nobody in the chain.
fn stranger(path: Option<&'static str>) -> Hook {
    Box::new(move |fleet: &mut Fleet| {
        let address = fleet.members[3].address.clone();
        Box::pin(async move {
            let mut request = Request::new(GetStockRequest {
                item: "teapot".to_owned(),
            });
            if let Some(path) = path {
                request
                    .metadata_mut()
                    .insert("retryscope-attempt-path", path.parse().expect("ASCII"));
            }
            let status = InventoryClient::new(channel(&address))
                .get_stock(request)
                .await
                .expect_err("inventory is down");
            assert_eq!(status.code(), tonic::Code::Unavailable);
        })
    })
}

fn channel(address: &Address) -> Channel {
    Channel::from_shared(format!("http://{address}"))
        .expect("an address")
        .connect_lazy()
}

/// What happens between the services and the collector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tamper {
    /// One SERVER span of inventory never comes.
    DropOne,
    /// Every batch comes twice.
    Twice,
}

/// A relay that passes batches on, tampering; on a thread and a runtime of its own.
pub fn relay(tamper: Tamper) -> Box<dyn FnOnce(SocketAddr) -> SocketAddr> {
    Box::new(move |collector| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        listener.set_nonblocking(true).expect("a socket");
        std::thread::spawn(move || {
            block_on(async move {
                let relay = Relay {
                    to: channel(&collector.into()),
                    tamper,
                    dropped: Mutex::new(false),
                };
                let incoming = TcpIncoming::from(tokio::net::TcpListener::from_std(listener).expect("a socket"));
                let server = Server::builder().add_service(TraceServiceServer::new(relay));
                server.serve_with_incoming(incoming).await.expect("the relay serves");
            });
        });
        address
    })
}

struct Relay {
    to: Channel,
    tamper: Tamper,
    dropped: Mutex<bool>,
}

#[tonic::async_trait]
impl TraceService for Relay {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let mut batch = request.into_inner();
        if self.tamper == Tamper::DropOne {
            self.drop_one(&mut batch);
        }
        let times = if self.tamper == Tamper::Twice { 2 } else { 1 };
        let mut client = TraceServiceClient::new(self.to.clone());
        let mut answer = client.export(batch.clone()).await?;
        for _ in 1..times {
            answer = client.export(batch.clone()).await?;
        }
        Ok(answer)
    }
}

impl Relay {
    fn drop_one(&self, batch: &mut ExportTraceServiceRequest) {
        for resource in &mut batch.resource_spans {
            let is_inventory = format!("{:?}", resource.resource).contains("\"inventory\"");
            for scope in &mut resource.scope_spans {
                let mut dropped = self.dropped.lock().expect("nobody panics with it");
                let server = scope.spans.iter().position(|span| span.kind() == SpanKind::Server);
                if let Some(position) = server.filter(|_| is_inventory && !*dropped) {
                    scope.spans.remove(position);
                    *dropped = true;
                }
            }
        }
    }
}

/// Puts a ledger in front of a service's own that forgets an arrival with every reading.
fn forgetful_ledger(position: usize) -> Hook {
    Box::new(move |fleet: &mut Fleet| {
        let behind = fleet.members[position].control.clone();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        fleet.members[position].control = listener.local_addr().expect("an address").into();
        listener.set_nonblocking(true).expect("a socket");
        std::thread::spawn(move || {
            block_on(async move {
                let (ledger, control) = (Forgetful::behind(&behind), Forgetful::behind(&behind));
                let incoming = TcpIncoming::from(tokio::net::TcpListener::from_std(listener).expect("a socket"));
                let server = Server::builder()
                    .add_service(ledger_server::LedgerServer::new(ledger))
                    .add_service(control_server::ControlServer::new(control));
                server.serve_with_incoming(incoming).await.expect("the ledger serves");
            });
        });
        Box::pin(std::future::ready(()))
    })
}

struct Forgetful {
    behind: Channel,
    readings: AtomicU64,
}

impl Forgetful {
    fn behind(address: &Address) -> Self {
        Self {
            behind: channel(address),
            readings: AtomicU64::new(0),
        }
    }
}

#[tonic::async_trait]
impl ledger_server::Ledger for Forgetful {
    async fn read(&self, request: Request<lab::ReadRequest>) -> Result<Response<lab::Totals>, Status> {
        let mut totals = LedgerClient::new(self.behind.clone())
            .read(request.into_inner())
            .await?;
        let forgotten = self.readings.fetch_add(1, Ordering::Relaxed);
        totals.get_mut().received -= forgotten.min(totals.get_ref().received);
        Ok(totals)
    }

    type ReadRecordsStream = Pin<Box<dyn Stream<Item = Result<lab::Records, Status>> + Send>>;

    async fn read_records(
        &self,
        request: Request<lab::ReadRecordsRequest>,
    ) -> Result<Response<Self::ReadRecordsStream>, Status> {
        let stream = LedgerClient::new(self.behind.clone())
            .read_records(request.into_inner())
            .await?
            .into_inner();
        Ok(Response::new(Box::pin(stream)))
    }
}

#[tonic::async_trait]
impl control_server::Control for Forgetful {
    async fn describe(&self, request: Request<lab::DescribeRequest>) -> Result<Response<lab::Description>, Status> {
        ControlClient::new(self.behind.clone())
            .describe(request.into_inner())
            .await
    }

    async fn switch(&self, _: Request<lab::SwitchRequest>) -> Result<Response<lab::Switched>, Status> {
        Err(Status::unimplemented("nobody switches a run"))
    }

    async fn reserve(&self, _: Request<lab::ReserveRequest>) -> Result<Response<lab::Reserved>, Status> {
        Err(Status::unimplemented("nobody reserves in a run"))
    }

    type FollowStream = tokio_stream::Empty<Result<lab::Following, Status>>;

    async fn follow(&self, _: Request<lab::FollowRequest>) -> Result<Response<Self::FollowStream>, Status> {
        Err(Status::unimplemented("nobody follows a run"))
    }

    async fn flush(&self, request: Request<lab::FlushRequest>) -> Result<Response<lab::Flushed>, Status> {
        ControlClient::new(self.behind.clone())
            .flush(request.into_inner())
            .await
    }
}
