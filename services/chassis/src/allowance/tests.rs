use super::*;

fn bucket(max: u32, ratio_milli: u32) -> Bucket {
    Bucket::full(Throttle {
        max_milli: max * 1_000,
        ratio_milli,
    })
}

/// Retries that a bucket lets pass when everything fails: calls of `attempts` attempts until it shuts.
fn retries_until_shut(max: u32, attempts: u32) -> u32 {
    let mut bucket = bucket(max, 100);
    let mut retries = 0;
    for _call in 0..max {
        for made in 1..=attempts {
            bucket.fail();
            if !bucket.is_open() {
                return retries;
            }
            retries += u32::from(made < attempts);
        }
    }
    retries
}

#[test]
fn a_full_bucket_lets_as_many_retries_pass_as_the_reference_says() {
    for (max, retries) in [
        (4, [1, 1, 1, 1]),
        (10, [2, 3, 3, 4]),
        (20, [5, 6, 7, 8]),
        (100, [25, 33, 37, 40]),
        (1_000, [250, 333, 375, 400]),
    ] {
        let passed = [2, 3, 4, 5].map(|attempts| retries_until_shut(max, attempts));
        assert_eq!(passed, retries, "max_tokens = {max}");
    }
}

#[test]
fn from_an_empty_bucket_51_successes_open_the_door() {
    let mut bucket = bucket(10, 100);
    (0..20).for_each(|_| bucket.fail());
    assert_eq!(bucket.left_milli, 0);
    let needed = (1..100).find(|_| {
        bucket.succeed();
        bucket.is_open()
    });
    assert_eq!(needed, Some(51));
}

#[test]
fn exactly_half_is_shut_and_a_bucket_never_overflows() {
    let mut bucket = bucket(10, 100);
    (0..5).for_each(|_| bucket.fail());
    assert!(!bucket.is_open());
    bucket.succeed();
    assert!(bucket.is_open());
    (0..1_000).for_each(|_| bucket.succeed());
    assert_eq!(bucket.left_milli, 10_000);
}

#[test]
fn a_share_in_flight_is_rounded_down_and_never_below_the_floor() {
    // Attempts in flight, percent in thousandths, floor, retries allowed at once.
    for (attempts, percent_milli, floor, allowed) in [
        (1, 20_000, 3, 3),
        (19, 20_000, 3, 3),
        (20, 20_000, 3, 4),
        (40, 20_000, 3, 8),
        (4, 20_000, 0, 0),
        (5, 20_000, 0, 1),
        (3, 33_333, 0, 0),
        (3, 33_334, 0, 1),
        (7, 100_000, 0, 7),
        (7, 0, 0, 0),
    ] {
        let mut budget = InFlight::new(percent_milli, floor);
        (0..attempts).for_each(|_| budget.send());
        let granted = (0..100).filter(|_| budget.retry()).count();
        assert_eq!(granted, allowed, "{attempts} in flight, {percent_milli}, {floor}");
    }
}

#[test]
fn a_retry_that_has_ended_makes_room_for_another() {
    let mut budget = InFlight::new(0, 1);
    assert!(budget.retry());
    assert!(!budget.retry());
    budget.end_retry();
    assert!(budget.retry());
}

#[tokio::test(start_paused = true)]
async fn a_withdrawal_needs_a_whole_retry() {
    let now = Instant::now();
    let mut window = Window::new(600, 0, Duration::from_secs(10));
    window.deposit(now);
    assert!(!window.withdraw(now));
    window.deposit(now);
    assert!(window.withdraw(now));
    assert!(!window.withdraw(now));
    assert_eq!(window.sum_milli, 200);
}

#[tokio::test(start_paused = true)]
async fn each_deposit_is_forgotten_at_its_own_time() {
    let start = Instant::now();
    let at = |ms| start + Duration::from_millis(ms);
    let mut window = Window::new(500, 0, Duration::from_secs(10));
    window.deposit(at(0));
    window.deposit(at(1));
    window.forget(at(9_999));
    assert_eq!(window.sum_milli, 1_000);
    window.forget(at(10_000));
    assert_eq!(window.sum_milli, 500);
    window.forget(at(10_001));
    assert_eq!((window.sum_milli, window.entries.len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn withdrawals_are_forgotten_too_so_the_reserve_comes_back() {
    let start = Instant::now();
    let mut window = Window::new(0, 10, Duration::from_secs(10));
    let drawn = |window: &mut Window, now| (0..1_000).filter(|_| window.withdraw(now)).count();
    // The reserve is one burst of min_per_second * ttl, not a rate.
    assert_eq!(drawn(&mut window, start), 100);
    assert_eq!(drawn(&mut window, start + Duration::from_millis(9_999)), 0);
    assert_eq!(drawn(&mut window, start + Duration::from_secs(10)), 100);
}

#[tokio::test(start_paused = true)]
async fn a_reserve_is_exact_for_a_ttl_of_less_than_a_second() {
    let mut window = Window::new(0, 3, Duration::from_millis(500));
    assert_eq!(window.reserve_milli, 1_500);
    let now = Instant::now();
    assert!(window.withdraw(now));
    assert!(!window.withdraw(now));
}

fn window(ratio_milli: u32) -> Arc<Allowance> {
    let (min_per_second, ttl) = (0, Duration::from_secs(10));
    Allowance::of(&Policy {
        budget: Some(Budget::Window {
            ratio_milli,
            min_per_second,
            ttl,
        }),
        ..Policy::default()
    })
}

fn sum_milli(allowance: &Allowance) -> i64 {
    match &*lock(allowance.budget.as_ref().unwrap()) {
        Spending::Window(window) => window.sum_milli,
        Spending::InFlight(_) => panic!("the other budget"),
    }
}

fn under_way(allowance: &Allowance) -> (u64, u64) {
    match &*lock(allowance.budget.as_ref().unwrap()) {
        Spending::InFlight(in_flight) => (in_flight.attempts, in_flight.retries),
        Spending::Window(_) => panic!("the other budget"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_is_not_sent_gets_its_withdrawal_back() {
    let (allowance, now) = (window(1_000), Instant::now());
    let mut first = allowance.first();
    assert_eq!(sum_milli(&allowance), 0);
    first.send(now);
    assert_eq!(sum_milli(&allowance), 1_000);
    let unsent = first.again(now).unwrap();
    assert_eq!(sum_milli(&allowance), 0);
    assert!(allowance.retry(now).is_none());
    drop(unsent);
    assert_eq!(sum_milli(&allowance), 1_000);
    let mut sent = allowance.retry(now).unwrap();
    sent.send(now);
    drop(sent);
    assert_eq!(sum_milli(&allowance), 0);
}

#[tokio::test(start_paused = true)]
async fn a_place_counts_from_its_decision_to_its_end() {
    let allowance = Allowance::of(&Policy {
        budget: Some(Budget::InFlight {
            percent_milli: 0,
            min_concurrency: 1,
        }),
        ..Policy::default()
    });
    let now = Instant::now();
    let mut first = allowance.first();
    first.send(now);
    assert_eq!(under_way(&allowance), (1, 0));
    let mut second = first.again(now).unwrap();
    // In its back-off it is a retry, but no attempt in flight.
    assert_eq!(under_way(&allowance), (0, 1));
    assert!(allowance.retry(now).is_none());
    second.send(now);
    assert_eq!(under_way(&allowance), (1, 1));
    // Its own retry is over when it asks for the next.
    let third = second.again(now).unwrap();
    assert_eq!(under_way(&allowance), (0, 1));
    drop(third);
    assert_eq!(under_way(&allowance), (0, 0));
}

/// Retries that so many attempts are granted which all fail at the same moment.
fn granted(percent_milli: u32, attempts: usize) -> usize {
    let allowance = Allowance::of(&Policy {
        budget: Some(Budget::InFlight {
            percent_milli,
            min_concurrency: 0,
        }),
        ..Policy::default()
    });
    let now = Instant::now();
    let sent = || {
        let mut place = allowance.first();
        place.send(now);
        place
    };
    let wave: Vec<_> = std::iter::repeat_with(sent).take(attempts).collect();
    let retries: Vec<_> = wave.into_iter().filter_map(|failed| failed.again(now)).collect();
    retries.len()
}

#[tokio::test(start_paused = true)]
async fn a_wave_of_failures_is_granted_what_envoy_grants_it() {
    // Envoy 1.40, measured: no decision counts the attempt that it is about.
    for (attempts, retries) in [
        (3, 0),
        (5, 0),
        (6, 1),
        (10, 1),
        (11, 1),
        (14, 2),
        (16, 2),
        (20, 3),
        (21, 3),
        (40, 6),
    ] {
        assert_eq!(granted(20_000, attempts), retries, "20 %, {attempts} at once");
    }
    for (attempts, of_all, of_half) in [(1, 0, 0), (2, 1, 0), (3, 1, 1), (4, 2, 1)] {
        assert_eq!(
            (granted(100_000, attempts), granted(50_000, attempts)),
            (of_all, of_half),
            "{attempts}"
        );
    }
}
