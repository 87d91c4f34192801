//! The modelled PostgreSQL and a real one go through the same random script, and must come out of every order the same:
//! roles, timelines, streams, rows, and which writes are acknowledged.

mod real;

use coregent_sim::{Role, Seen, Solo};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Scripts that are always the same; `COREGENT_SEEDS=20` plays so many others, `COREGENT_SEED=107` one.
const SEEDS: u64 = 2;
/// Orders of a script.
const ORDERS: usize = 24;
const MEMBERS: usize = 3;
/// How long a real server may take to become what the modelled one is.
const PATIENCE: Duration = Duration::from_secs(60);

/// One order.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Order {
    Write(usize),
    Kill(usize),
    Stop(usize),
    Start(usize, Option<usize>),
    StartAlone(usize),
    Promote(usize),
    Follow(usize, usize),
    Rewind(usize, usize),
    Copy(usize, usize),
    Slots(usize, Vec<usize>),
    Sync(usize, Vec<usize>),
}

/// `splitmix64`, as in the simulator.
struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((z ^ (z >> 31)) % bound.max(1) as u64).unwrap_or(0)
    }
}

/// What the script knows of the cluster, by its own orders.
#[derive(Clone, Debug, Default)]
struct Known {
    /// Whose server has been told to run.
    up: [bool; MEMBERS],
    has_data: [bool; MEMBERS],
    /// Who was promoted last, or began.
    primary: usize,
    /// The newest timeline that a member's data has been on.
    timelines: [u32; MEMBERS],
    newest: u32,
    /// Rows that were not acknowledged, as long as their server has not ended.
    waiting: BTreeSet<u32>,
    rows: u32,
}

impl Known {
    fn primary_is_up(&self) -> bool {
        self.up[self.primary]
    }

    /// Orders that make sense now; which of them are likely is by how often they are named.
    fn choices(&self, seen: &[Seen]) -> Vec<Order> {
        let mut all = Vec::new();
        let p = self.primary;
        for (m, of) in seen.iter().enumerate() {
            let standby = of.role == Role::Standby;
            if self.up[m] {
                all.push(Order::Kill(m));
                if of.role != Role::Off && (self.waiting.is_empty() || m != p) {
                    all.push(Order::Stop(m));
                }
            }
            if m != p && self.primary_is_up() && !self.up[m] {
                all.extend(vec![Order::Copy(m, p); if self.has_data[m] { 1 } else { 4 }]);
                if self.has_data[m] {
                    all.extend([Order::Start(m, Some(p)), Order::Start(m, Some(p))]);
                    // On one timeline nothing is to be rewound, and what was killed would recover by itself for it, and part.
                    if self.timelines[m] < self.newest {
                        all.extend(vec![Order::Rewind(m, p); 3]);
                    }
                }
            }
            if m != p && standby && self.primary_is_up() && !of.streams {
                all.extend([Order::Follow(m, p), Order::Follow(m, p)]);
            }
            // A standby of nobody is the next primary, where its timeline is the newest and the primary is gone.
            if !self.primary_is_up() && standby && self.timelines[m] == self.newest {
                all.extend(vec![Order::Promote(m); 4]);
            }
            if !self.primary_is_up() && !self.up[m] && m != p && self.has_data[m] {
                all.extend([Order::StartAlone(m), Order::StartAlone(m)]);
            }
        }
        if self.primary_is_up() {
            all.extend(vec![Order::Write(p); 6]);
            let others: Vec<usize> = (0..MEMBERS).filter(|m| *m != p).collect();
            let one = others[self.rows as usize % others.len()];
            all.extend([Order::Sync(p, Vec::new()), Order::Sync(p, vec![one]), Order::Sync(p, others.clone())]);
            all.extend([Order::Slots(p, vec![one]), Order::Slots(p, others)]);
        } else {
            all.extend([Order::Start(p, None), Order::Start(p, None)]);
        }
        all
    }
}

/// What the model makes of an order: whether it was carried out, of a write whether it was acknowledged.
fn by_model(order: &Order, row: u32, model: &Solo) -> bool {
    match order {
        Order::Write(m) => model.write(*m, row),
        Order::Kill(m) => {
            model.kill(*m);
            true
        }
        Order::Stop(m) => model.stop(*m),
        Order::Start(m, follow) => model.start(*m, *follow),
        Order::StartAlone(m) => model.start_alone(*m),
        Order::Promote(m) => model.promote(*m).is_some(),
        Order::Follow(m, p) => model.follow(*m, *p),
        Order::Rewind(m, p) => model.rewind(*m, *p),
        Order::Copy(m, p) => model.copy(*m, *p),
        Order::Slots(m, of) => model.slots(*m, of),
        Order::Sync(m, of) => model.sync(*m, of),
    }
}

/// The same of the real servers; `expected` is what the model made of it.
fn by_servers(order: &Order, row: u32, expected: bool, servers: &mut real::Servers) -> real::Result<bool> {
    let done = match order {
        Order::Write(m) => return servers.write(*m, row, expected),
        Order::Rewind(m, p) => return Ok(servers.rewind(*m, *p).is_ok()),
        Order::Kill(m) => servers.kill(*m),
        Order::Stop(m) => servers.stop(*m),
        Order::Start(m, follow) => servers.start(*m, *follow),
        Order::StartAlone(m) => servers.start_alone(*m),
        Order::Promote(m) => servers.promote(*m),
        Order::Follow(m, p) => servers.follow(*m, *p),
        Order::Copy(m, p) => servers.copy(*m, *p),
        Order::Slots(m, of) => servers.slots(*m, of),
        Order::Sync(m, of) => servers.sync(*m, of),
    };
    // Whether a start or a follow comes to anything is seen afterwards.
    done.map(|()| expected)
}

/// Gives one order to both.
fn give(order: &Order, known: &mut Known, model: &Solo, servers: &mut real::Servers) -> real::Result<()> {
    known.rows += u32::from(matches!(order, Order::Write(_)));
    let row = known.rows;
    let expected = by_model(order, row, model);
    let found = by_servers(order, row, expected, servers)?;
    if found != expected {
        return Err(format!("it comes to {found}, by the model to {expected}").into());
    }
    match order {
        Order::Write(_) if !expected => {
            known.waiting.insert(row);
        }
        Order::Kill(m) | Order::Stop(m) => known.up[*m] = false,
        Order::Start(m, _) | Order::StartAlone(m) => known.up[*m] = true,
        Order::Promote(m) => (known.primary, known.newest) = (*m, known.newest + 1),
        Order::Copy(m, _) => known.has_data[*m] = true,
        _ => {}
    }
    if !known.primary_is_up() {
        known.waiting.clear();
    }
    Ok(())
}

/// What is wrong with a real server, if anything is.
fn differs(member: usize, expected: &Seen, known: &Known, servers: &real::Servers) -> Option<String> {
    let found = servers.seen(member);
    let (recovers, timeline, streams, rows) = match (found, expected.role) {
        (None, Role::Off) => return None,
        (None, _) => return Some(format!("it does not answer; by the model {expected:?}")),
        (Some(found), Role::Off) => return Some(format!("it answers ({found:?}); by the model it does not")),
        (Some(found), _) => found,
    };
    // A row that is waited for is in the log, and nobody sees it on its own server.
    let visible = |rows: &BTreeSet<u32>| -> BTreeSet<u32> {
        rows.iter().filter(|row| recovers || !known.waiting.contains(row)).copied().collect()
    };
    let same = recovers == (expected.role == Role::Standby)
        && streams == expected.streams
        && timeline.is_none_or(|timeline| Some(timeline) == expected.timeline)
        && visible(&rows) == visible(&expected.rows);
    let found = format!("recovery {recovers}, timeline {timeline:?}, streams {streams}, rows {rows:?}");
    (!same).then(|| format!("{found}; by the model {expected:?}"))
}

fn compare(known: &mut Known, model: &Solo, servers: &mut real::Servers) -> real::Result<Vec<Seen>> {
    model.settle();
    let seen: Vec<Seen> = (0..MEMBERS).map(|member| model.seen(member)).collect();
    for (member, expected) in seen.iter().enumerate() {
        if let Some(timeline) = expected.timeline {
            known.timelines[member] = timeline;
        }
        if expected.role == Role::Off && known.up[member] {
            // That it does not answer is of no use before it has come to rest.
            servers.rests(member)?;
        }
        let begun = Instant::now();
        while let Some(what) = differs(member, expected, known, servers) {
            if begun.elapsed() > PATIENCE {
                let said = servers.last_words(member);
                return Err(format!("member {member}: {what}\n{said}").into());
            }
            std::thread::sleep(Duration::from_millis(30));
        }
    }
    Ok(seen)
}

fn play(seed: u64, bin: std::path::PathBuf) -> real::Result<Vec<Order>> {
    let mut rng = Rng(seed);
    let mut servers = real::Servers::new(bin, MEMBERS)?;
    let model = Solo::new(seed, MEMBERS);
    let mut known = Known { newest: 1, timelines: [1; MEMBERS], ..Known::default() };
    model.make(0);
    servers.make(0)?;
    (known.up[0], known.has_data[0]) = (true, true);
    let mut orders = Vec::new();
    let mut seen = compare(&mut known, &model, &mut servers)?;
    // Two standbys to begin with, then whatever comes.
    let first =
        [Order::Copy(1, 0), Order::Start(1, Some(0)), Order::Write(0), Order::Copy(2, 0), Order::Start(2, Some(0))];
    for number in 0..ORDERS {
        let order = match first.get(number) {
            Some(order) => order.clone(),
            None => {
                let choices = known.choices(&seen);
                choices.get(rng.below(choices.len())).ok_or("nothing can be done")?.clone()
            }
        };
        orders.push(order.clone());
        let told = |why: Box<dyn std::error::Error>| format!("after {orders:?}: {why}");
        give(&order, &mut known, &model, &mut servers).map_err(told)?;
        seen = compare(&mut known, &model, &mut servers).map_err(told)?;
    }
    Ok(orders)
}

#[test]
fn the_modelled_postgresql_comes_out_of_every_order_as_a_real_one_does() {
    let Some(bin) = real::programs() else { return };
    let asked = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match (asked("COREGENT_SEED"), asked("COREGENT_SEEDS")) {
        (Some(seed), _) => seed..seed + 1,
        (None, Some(count)) => 100..100 + count,
        (None, None) => 1..SEEDS + 1,
    };
    for seed in seeds {
        match play(seed, bin.clone()) {
            Ok(orders) => println!("seed {seed}: {orders:?}"),
            Err(why) => panic!("seed {seed}: {why}"),
        }
    }
}
