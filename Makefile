# Every target is a thin name for what .ci/run does, so that a green `make ci`
# here is a green CI.
.PHONY: test race lint proto fuzz bench bench-client bench-xds bench-ingest ci

test:
	go test -count=1 ./...

race:
	go test -race ./...

lint:
	.ci/run tools build tidy format lint proto-lint proto-breaking

# Writes the generated code of api/ anew.
proto:
	.ci/run tools
	PATH="$(CURDIR)/bin:$$PATH" buf generate

# FUZZ_INPUTS=1000000 make fuzz: looks longer.
fuzz:
	.ci/run fuzz

bench:
	go test -run '^$$' -bench . ./...

# Against peers, some fifteen minutes; JSON on standard output.
bench-client:
	@go -C bench run ./client $(BENCH_FLAGS)

# What hedged promises with its defaults, in the quick form.
goals:
	go run ./cmd/hedgectl simulate --goals --quick

# Looks anew for the best fixed delays that goals are held against; after a change of
# one of their worlds. Takes minutes.
oracle:
	go run ./cmd/hedgectl simulate --goals --oracle --no-progress > oracle.tmp
	mv oracle.tmp sim/goals/oracle.txt

# Our xDS server beside go-control-plane's caches. BENCH_FLAGS="-rounds 3 -pace 4":
# fewer rounds, and more time between updates, as a busy machine needs.
bench-xds:
	@go -C bench run ./xds $(BENCH_FLAGS)

# What the daemon spends on reports: 10,000 streams, one report a second each.
bench-ingest:
	@go -C bench run ./ingest $(BENCH_FLAGS)

ci:
	.ci/run
