//! The picture under construction: what every thread and CPU did, up to a limit of memory.

use std::collections::{BTreeMap, HashMap};

use base::timeline::{CallSpan, CpuLane, CpuSpan, Loss, Picture, ThreadLane};

#[derive(Debug, Default)]
pub struct Lanes {
    threads: Vec<ThreadLane>,
    /// The current lane of a thread id; ids are reused.
    lane_of: HashMap<u32, usize>,
    cpus: BTreeMap<u32, CpuLane>,
    losses: Vec<Loss>,
    spans: usize,
    spans_max: usize,
    left_out: Option<(u64, u64)>,
}

impl Lanes {
    /// Each lane and each loss counts as one of the spans.
    pub fn new(spans_max: usize) -> Self {
        Self { spans_max, ..Self::default() }
    }

    /// The lane of a thread that began or is seen for the first time; `None` if there is no room.
    pub fn thread(&mut self, thread: u32, process: u32) -> Option<usize> {
        if let Some(lane) = self.lane_of.get(&thread) {
            return Some(*lane);
        }
        // It takes as much memory as a span.
        if self.spans >= self.spans_max {
            return None;
        }
        self.spans += 1;
        let lane = self.threads.len();
        self.threads.push(ThreadLane { thread, process, ..ThreadLane::default() });
        self.lane_of.insert(thread, lane);
        Some(lane)
    }

    /// Its name, from now on and before.
    pub fn name(&mut self, thread: u32, process: u32, name: &str) {
        if let Some(lane) = self.thread(thread, process) {
            name.clone_into(&mut self.threads[lane].name);
        }
    }

    /// The thread ended: its id may be reused.
    pub fn end(&mut self, thread: u32) {
        self.lane_of.remove(&thread);
    }

    /// Whether there is room for one more span; otherwise it is left out from now on.
    fn has_room(&mut self, from_ns: u64) -> bool {
        if self.spans < self.spans_max {
            self.spans += 1;
            return true;
        }
        let (count, _) = self.left_out.get_or_insert((0, from_ns));
        *count += 1;
        false
    }

    pub fn call(&mut self, thread: u32, process: u32, mut span: CallSpan) {
        let lane = self.thread(thread, process);
        let (true, Some(lane)) = (self.has_room(span.from_ns), lane) else { return };
        let calls = &mut self.threads[lane].calls;
        let free_ns = calls.last().map_or(0, |last| last.to_ns);
        (span.from_ns, span.to_ns) = after(free_ns, span.from_ns, span.to_ns);
        calls.push(span);
    }

    pub fn run(&mut self, thread: u32, process: u32, cpu: u32, from_ns: u64, to_ns: u64) {
        let lane = self.thread(thread, process);
        if let (true, Some(lane)) = (self.has_room(from_ns), lane) {
            push(&mut self.cpu(cpu).runs, lane as u32, from_ns, to_ns);
        }
    }

    pub fn softirq(&mut self, cpu: u32, vector: u32, from_ns: u64, to_ns: u64) {
        if self.has_room(from_ns) {
            push(&mut self.cpu(cpu).softirqs, vector, from_ns, to_ns);
        }
    }

    fn cpu(&mut self, cpu: u32) -> &mut CpuLane {
        self.cpus.entry(cpu).or_insert_with(|| CpuLane { cpu, ..CpuLane::default() })
    }

    /// Adds a period of losses. Without room, the last one is extended, so that no loss is hidden.
    pub fn loss(&mut self, loss: Loss) {
        if self.spans < self.spans_max || self.losses.is_empty() {
            self.spans += 1;
            self.losses.push(loss);
        } else if let Some(last) = self.losses.last_mut() {
            (last.to_ns, last.events) = (last.to_ns.max(loss.to_ns), last.events + loss.events);
        }
    }

    /// The picture of what lies between two moments.
    pub fn finish(mut self, names: Vec<String>, from_ns: u64, to_ns: u64) -> Picture {
        let window = Window { from_ns, to_ns };
        for lane in &mut self.threads {
            lane.calls.retain_mut(|call| window.cut(&mut call.from_ns, &mut call.to_ns));
        }
        for span in self.cpus.values_mut().map(|cpu| (&mut cpu.runs, &mut cpu.softirqs)) {
            for spans in [span.0, span.1] {
                spans.retain_mut(|span| window.cut(&mut span.from_ns, &mut span.to_ns));
            }
        }
        self.losses.retain_mut(|loss| window.cut(&mut loss.from_ns, &mut loss.to_ns));
        self.losses.sort_by_key(|loss| (loss.cpu, loss.from_ns));
        self.order_threads();
        Picture {
            length_ns: to_ns.saturating_sub(from_ns),
            names,
            threads: self.threads,
            cpus: self.cpus.into_values().collect(),
            counters: Vec::new(),
            losses: self.losses,
            left_out: self.left_out.map(|(count, at_ns)| (count, at_ns.saturating_sub(from_ns))),
        }
    }

    /// Threads of a process stand together; the runs on CPUs refer to them by their place.
    fn order_threads(&mut self) {
        let mut order: Vec<usize> = (0..self.threads.len()).collect();
        order.sort_by_key(|&lane| (self.threads[lane].process, self.threads[lane].thread, lane));
        let mut place_of = vec![0u32; order.len()];
        for (place, &lane) in order.iter().enumerate() {
            place_of[lane] = place as u32;
        }
        self.threads = order.iter().map(|&lane| std::mem::take(&mut self.threads[lane])).collect();
        for run in self.cpus.values_mut().flat_map(|cpu| &mut cpu.runs) {
            run.what = place_of[run.what as usize];
        }
    }
}

/// Spans of a lane do not overlap: a span that would begin before the end of the last one begins at that end.
fn after(free_ns: u64, from_ns: u64, to_ns: u64) -> (u64, u64) {
    let from_ns = from_ns.max(free_ns);
    (from_ns, to_ns.max(from_ns))
}

fn push(spans: &mut Vec<CpuSpan>, what: u32, from_ns: u64, to_ns: u64) {
    let (from_ns, to_ns) = after(spans.last().map_or(0, |last| last.to_ns), from_ns, to_ns);
    spans.push(CpuSpan { from_ns, to_ns, what });
}

struct Window {
    from_ns: u64,
    to_ns: u64,
}

impl Window {
    /// Cuts a span to the window and counts from its beginning; `false` if it lies outside.
    fn cut(&self, from_ns: &mut u64, to_ns: &mut u64) -> bool {
        let within = *to_ns >= self.from_ns && *from_ns <= self.to_ns;
        *from_ns = (*from_ns).clamp(self.from_ns, self.to_ns.max(self.from_ns)) - self.from_ns;
        *to_ns = (*to_ns).clamp(self.from_ns, self.to_ns.max(self.from_ns)) - self.from_ns;
        within
    }
}

#[cfg(test)]
mod tests {
    use base::timeline::CallState;

    use super::*;

    fn span(from_ns: u64, to_ns: u64) -> CallSpan {
        CallSpan { from_ns, to_ns, name: 0, state: CallState::Ready, unfinished: false, returned: 0 }
    }

    #[test]
    fn picture_starts_at_zero_with_threads_by_process() {
        let mut lanes = Lanes::new(100);
        lanes.call(9, 9, span(900, 1100));
        lanes.call(4, 3, span(1200, 1300));
        lanes.call(4, 3, span(1290, 1400));
        lanes.run(9, 9, 1, 1000, 1500);
        lanes.name(9, 9, "nine");
        let picture = lanes.finish(vec!["read".into()], 1000, 1400);
        assert_eq!(picture.length_ns, 400);
        assert_eq!(picture.threads.iter().map(|lane| lane.thread).collect::<Vec<_>>(), [4, 9]);
        assert_eq!((picture.threads[1].calls[0].from_ns, picture.threads[1].calls[0].to_ns), (0, 100));
        assert_eq!(picture.threads[0].calls[1].from_ns, 300, "none begins before the last has ended");
        assert_eq!(picture.cpus[0].runs, [CpuSpan { from_ns: 0, to_ns: 400, what: 1 }]);
        assert_eq!(picture.threads[1].name, "nine");
    }

    #[test]
    fn omitted_items_are_counted_and_numbers_may_repeat() {
        let mut lanes = Lanes::new(4);
        lanes.call(5, 5, span(10, 20));
        lanes.end(5);
        lanes.call(5, 5, span(30, 40));
        lanes.call(5, 5, span(50, 60));
        let picture = lanes.finish(vec![], 0, 100);
        assert_eq!((picture.threads.len(), picture.spans()), (2, 2));
        assert_eq!(picture.left_out, Some((1, 50)));
    }

    #[test]
    fn thread_and_loss_records_count_as_room() {
        let mut lanes = Lanes::new(3);
        for thread in 1..=10 {
            lanes.run(thread, 1, 0, 100, 200);
            lanes.name(thread, 1, "one of many");
            lanes.loss(Loss { from_ns: 300, to_ns: 310 + u64::from(thread), cpu: 0, events: 1 });
        }
        let picture = lanes.finish(vec![], 0, 1000);
        assert_eq!((picture.threads.len(), picture.spans(), picture.losses.len()), (1, 1, 1));
        assert_eq!((picture.losses[0].to_ns, picture.losses[0].events), (320, 10), "none is hidden");
        assert_eq!(picture.left_out.map(|(count, _)| count), Some(9));
    }
}
