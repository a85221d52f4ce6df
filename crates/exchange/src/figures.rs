//! The pictures of a trial: distributions, response times and socket memory over time.

use base::format::{count, quantity};
use base::outcome::{Axis, Figure, Layer, Marks, Tone};

use crate::report::{ClassReport, ClientsReport};
use crate::settings::Class;

const TONES: [Tone; 6] = [Tone::First, Tone::Second, Tone::Third, Tone::Fourth, Tone::Fifth, Tone::Sixth];

fn tone(index: usize) -> Tone {
    TONES[index % TONES.len()]
}

pub(crate) fn of(classes: &[Class], report: &ClientsReport) -> Vec<Figure> {
    [distribution(classes, report), over_time(report), memory(report)]
        .into_iter()
        .filter_map(Figure::kept)
        .collect()
}

/// The share of messages with a reply within a time.
fn distribution(classes: &[Class], report: &ClientsReport) -> Figure {
    let line = |class: &ClassReport| {
        let percents = (1..=99).map(f64::from).chain([99.5, 99.9, 100.0]);
        let at = percents.filter_map(|percent| {
            let ns = class.response.percentile_ns(percent)?;
            // Errors have no reply at all.
            let share = percent * class.answered as f64 / class.due().max(1) as f64;
            Some((ns as f64 / 1e6, Some(share)))
        });
        Marks::Line { at: at.collect() }
    };
    let layers =
        report.classes.iter().enumerate().map(|(at, one)| Layer::new(&one.name, tone(at), line(one)));
    let targets = classes.iter().filter_map(|class| {
        let label = if classes.len() > 1 { format!("target of {}", class.name) } else { "target".to_owned() };
        Some(Layer::new("", Tone::Soft, Marks::Down { x: class.target?.s() * 1e3, label }))
    });
    Figure {
        title: "Response times".into(),
        note: format!(
            "Share of the due messages whose reply had come within a time; one that ended in an error \
             never had a reply. n = {}.",
            count(report.classes.iter().map(ClassReport::due).sum::<u64>() as f64)
        ),
        x: Axis::log("response time", "ms"),
        y: Axis::of("messages", "%").between(0.0, 100.0),
        layers: layers.chain(targets).collect(),
    }
}

/// The mean response time in each slot, and the longest.
fn over_time(report: &ClientsReport) -> Figure {
    let mut layers = Vec::new();
    for (index, class) in report.classes.iter().enumerate() {
        let slots = || class.slots.iter().enumerate().filter(|(_, slot)| slot.answered > 0);
        let at_s = |slot: usize| (slot as f64 + 0.5) * report.slot_s;
        let mean = slots().map(|(at, slot)| (at_s(at), slot.response_ns_sum as f64 / slot.answered as f64));
        let mean = mean.map(|(at, ns)| (at, Some(ns / 1e6))).collect();
        let longest = slots().map(|(at, slot)| [at_s(at), slot.response_ns_max as f64 / 1e6]).collect();
        layers.push(Layer::new(&format!("{}, mean", class.name), tone(index), Marks::Line { at: mean }));
        layers.push(Layer::new(
            &format!("{}, longest", class.name),
            tone(index),
            Marks::Points { at: longest },
        ));
    }
    Figure {
        title: "Response times over time".into(),
        note: format!(
            "Mean and longest of the replies that came within each {}.",
            quantity(Some(report.slot_s), "s")
        ),
        x: Axis::of("time since the start", "s"),
        y: Axis::of("response time", "ms"),
        layers,
    }
}

/// The kernel memory of each client's socket.
fn memory(report: &ClientsReport) -> Figure {
    let mut layers = Vec::new();
    for class in &report.classes {
        for client in &class.clients_memory {
            let at = client.samples.iter().map(|(at_s, bytes)| (*at_s, Some(*bytes as f64))).collect();
            let name = format!("{} {}", class.name, client.client + 1);
            layers.push(Layer::new(&name, tone(client.client as usize), Marks::Line { at }));
        }
        if class.clients_memory.is_empty() {
            let at = class.memory.iter().map(|one| (one.at_s, Some(one.max_bytes as f64))).collect();
            layers.push(Layer::new(&format!("{}, largest", class.name), Tone::First, Marks::Line { at }));
        }
    }
    Figure {
        title: "Socket memory of the clients".into(),
        note:
            "Kernel memory of sent data that is not acknowledged yet, and of received data that the client \
               has not read yet (SO_MEMINFO)."
                .into(),
        x: Axis::of("time since the start", "s"),
        y: Axis::of("memory", "B"),
        layers,
    }
}
