# Every target is a thin name for what .ci/run does, so that a green `make ci`
# here is a green CI.
.PHONY: test race lint proto fuzz bench bench-client ci

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

# Against peers, some ten minutes; JSON on standard output.
bench-client:
	@go -C bench run ./client

ci:
	.ci/run
