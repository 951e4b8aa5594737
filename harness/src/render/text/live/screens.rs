//! Whole screens of a chain that stays up, as they must come out.

use super::*;
use crate::render::{samples, text::Style};

#[test]
fn show() {
    use samples::{SHOP, called, called_mixed, changed, counts, hidden, started, status_of, transient};
    let p = "target/release/harness";
    let mut out = String::new();
    let mut st = started(&SHOP);
    out += &up(&st, p, Style::Plain);
    out += "=====\n";
    st.attach = Some(
        "frontend=127.0.0.1:41235,checkout=127.0.0.1:41237,pricing=127.0.0.1:41239,inventory=127.0.0.1:41241".into(),
    );
    st.otlp = Some("http://127.0.0.1:4317".into());
    st.chain = st.chain.replace("inventory'", "inventory fail:first=2'");
    out += &up(&st, "harness", Style::Plain);
    out += "=====\n";
    out += &call(
        &called(),
        Some("checkout: pricing: inventory: the injected fault"),
        p,
        Style::Plain,
    );
    out += "=====\n";
    out += &call(
        &called_mixed(),
        Some("checkout: pricing: inventory: the injected fault"),
        p,
        Style::Plain,
    );
    out += "=====\n";
    let mut t = transient();
    t.command = "run x --attach 'a=127.0.0.1:1,b=127.0.0.1:2'".into();
    out += &call(&t, None, p, Style::Plain);
    out += "=====\n";
    out += &call(&hidden(), Some("x"), p, Style::Plain);
    out += "=====\n";
    out += &switched(&samples::switched(), p, Style::Plain);
    out += "=====\n";
    let mut s = samples::switched();
    s.changes.clear();
    out += &switched(&s, p, Style::Plain);
    out += "=====\n";
    s.changes = ["frontend", "checkout", "pricing"]
        .map(|n| changed(n, "attempts", "3", "2"))
        .into();
    s.changes.push(changed(
        "pricing",
        "backoff",
        "none",
        "initial=25ms,multiplier=2,max=250ms,jitter=plus_minus_20",
    ));
    out += &switched(&s, p, Style::Plain);
    out += "=====\n";
    out += &status(&samples::status(), p, Style::Plain);
    out += "=====\n";
    let names = ["a".repeat(40), "b".repeat(40), "c".repeat(40), "d".repeat(40)];
    let mut s = status_of(&[&names[0], &names[1], &names[2], &names[3]]);
    s.mixed.operations = 2;
    s.mixed.complete = false;
    s.mixed.services = counts(&[&names[0], &names[1], &names[2], &names[3]], &[2, 4, 8, 1_234_567_890]);
    s.services[0].foreign = 40;
    s.services[1].backoff = Some("initial=25ms,multiplier=2,max=250ms,jitter=full".into());
    s.services[1].retry_on = Some("UNAVAILABLE,DEADLINE_EXCEEDED,RESOURCE_EXHAUSTED,INTERNAL".into());
    s.services[2].on_failure = Some("INTERNAL".into());
    s.services[2].transport_codes = "raw".into();
    s.services[2].generation = 2;
    s.services[3].fault = "fail:code=RESOURCE_EXHAUSTED,first=1000,scope=process".into();
    s.links[2].received = 100;
    s.command = "status --attach 'x=127.0.0.1:9'".into();
    out += &status(&s, p, Style::Plain);
    println!("{out}");
}
