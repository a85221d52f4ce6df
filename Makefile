# Two commands for a newcomer: `make survey` and `make test`. Both say what they do, and install what is missing.
.DEFAULT_GOAL := help
SHELL := /bin/bash
KAGIRI := target/release/kagiri

.PHONY: help survey console test quick build checked-build package check deps deny fuzz bench

help:
	@echo "make survey   install what is missing, build, measure this machine, name the report"
	@echo "make console  build the console's pages (needs Node.js with npm), and kagiri with them"
	@echo "make test     install what the tests need, then run every test"
	@echo "make quick    format, lint, and the unit tests of the crates that you changed"
	@echo "make bench    compare side by side with other tools (some three hours on a quiet machine)"
	@echo "             IPERF3=FILE: an iperf3 that is newer than the installed one"
	@echo "             OHA=FILE, WRK=FILE: the peers of exchange, if they are not in the PATH"
	@echo "             NEPER=FILE: with neper's tcp_rr beside daq; FILEBENCH=FILE: filebench beside files"
	@echo "make package  release build as a Python wheel, a Debian package and an OCI image, in target/package"
	@echo "make deny     check licences, sources and advisories of dependencies (needs cargo-deny)"
	@echo "make fuzz     fuzz every parser of foreign input for a minute each (needs cargo-fuzz)"

survey: build
	@$(KAGIRI) survey

build:
	@./scripts/need cargo cc
	@./scripts/build release

# Cargo looks for the pages when its build script has changed: without them, it had nothing to watch.
console:
	@command -v npm >/dev/null || { echo "kagiri: npm is missing, so the console's pages cannot be built; install \
	Node.js with npm (Debian: apt-get install npm). Everything else builds without: make build" >&2; exit 1; }
	npm --prefix ui ci
	npm --prefix ui run build
	touch crates/web/build.rs
	@$(MAKE) --no-print-directory build

package:
	@./scripts/need cargo cc python3 strip readelf dpkg-deb
	@./scripts/package

deps:
	@./scripts/need strip readelf dpkg-deb cargo cc ffmpeg ffprobe mplayer cvlc nginx ip tc ss mkfs.ext3 mkfs.xfs mkfs.btrfs groff script setpriv \
	  npm chromium clang iperf3 nuttcp openssl python3 java munged slurmctld slurmd srun ssh sshd shellcheck systemd-analyze s3fs rclone fusermount3

test: deps checked-build
	@# What this make offers its children is not for the tests, which call make and cargo themselves.
	MAKEFLAGS= KAGIRI_TESTS_ALL=1 ./scripts/run-tests

checked-build:
	@./scripts/checked-build

quick:
	@./scripts/quick

check:
	cargo fmt --all --check
	@# With the fuzz targets: that they still compile needs neither nightly nor libFuzzer itself.
	CUSTOM_LIBFUZZER_PATH=/none/libfuzzer.a cargo clippy --workspace --all-targets -- -D warnings

bench: build
	set -e; for suite in stream fleet lab qos timeline console; do \
	  cargo run --release --package kagiri-bench -- $$suite; done
	cargo run --release --package kagiri-bench -- transfer $(if $(IPERF3),--iperf3 $(IPERF3))
	cargo run --release --package kagiri-bench -- daq $(if $(NEPER),--neper $(NEPER))
	cargo run --release --package kagiri-bench -- exchange $(if $(OHA),--oha $(OHA)) $(if $(WRK),--wrk $(WRK))
	$(if $(FILEBENCH),cargo run --release --package kagiri-bench -- files --filebench $(FILEBENCH))

deny:
	@./scripts/deny

fuzz:
	./scripts/fuzz 60
