# Rockpool's commands. They need Go, a C compiler and make; Go fetches the rest.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help can-build as-root build agent sandbox prober web run dev nomad gvisor check test test-all test-nomad test-gvisor test-web test-vm test-race test-chaos test-attack soak screenshots lighthouse bench chaos lint generate baseline release install clean

DATA ?= ./data
CLUSTER ?= local
ARCHES := amd64 arm64
# Go fails where git refuses, for example for root in another user's clone.
VCS := $(if $(shell git rev-parse HEAD 2>/dev/null),auto,false)
# With these tags no package but the sandbox helper needs C, and all that is built, tested and
# linted shares what is compiled.
# Compilers and linters that collect less are faster by a fifth.
FAST := GOGC=400 GOMEMLIMIT=2500MiB
GO_BUILD := $(FAST) go build -trimpath -tags=netgo,osusergo -buildvcs=$(VCS)
# What is compiled from C names the clone that compiled it, which another clone's linter would
# look for: with a flag of its own, each clone compiles that itself.
LINT := $(FAST) CGO_CPPFLAGS=-I$(CURDIR) go tool -modfile=tools/go.mod golangci-lint

help: ## print this
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /\1|/' | while IFS='|' read -r name what; do printf '  make %-16s %s\n' "$$name" "$$what"; done

build: agent sandbox prober web ## build bin/rockpool with all it embeds
	@echo 'build bin/rockpool'
	@CGO_ENABLED=0 $(GO_BUILD) -ldflags='-s -w' -o bin/rockpool .

can-build:
	@scripts/needs go cc

as-root:
	@scripts/needs root

agent sandbox prober: can-build

agent:
	@for arch in $(ARCHES); do \
		echo "build the agent for linux/$$arch"; \
		CGO_ENABLED=0 GOOS=linux GOARCH=$$arch $(GO_BUILD) -ldflags='-s -w' -o agent/embedded/bin/agent-linux-$$arch ./agent/cmd || exit 1; \
	done

sandbox:
	@echo 'build the sandbox helper'
	@CGO_ENABLED=1 $(GO_BUILD) -ldflags='-s -w -extldflags=-static' -o local/sandbox/bin/rockpool-sandbox ./local/sandbox/cmd

prober:
	@echo 'build the prober'
	@CGO_ENABLED=0 $(GO_BUILD) -ldflags='-s -w' -o doctor/attack/bin/prober ./doctor/attack/prober

web:
	@scripts/web build

run: as-root build ## serve on http://127.0.0.1:8080 with warm runners, data in ./data (as root)
	@exec bin/rockpool serve --data $(DATA) --on-stop remove

dev: as-root build ## serve as run does, with everything in the log
	@exec bin/rockpool serve --data $(DATA) --on-stop remove --log-level debug

nomad: as-root ## run a real Nomad by hand, and say how to use it (as root); NOMADFLAGS='-acl -tls -drivers docker'
	@go build -o bin/nomadtest ./test/nomadtest/cmd && exec bin/nomadtest $(NOMADFLAGS)

gvisor: ## build gVisor's runsc once, in some minutes, and say where it is: for the setting gvisor-runtime, to try it out
	@scripts/gvisor

check: ## format, vet, lint, generated code, pure tests, web components: no root, under 3 minutes
	@scripts/test check

test: ## check, then real sandboxes, the API end to end, others' clients, the examples: under 10 minutes (as root)
	@scripts/test test

test-all: ## everything, in the phases below: under 40 minutes (as root); CI runs it
	@scripts/test all

test-nomad: ## only the tests with a real Nomad, which is built once (as root)
	@scripts/test nomad

test-gvisor: ## only those with gVisor, which is built once (as root)
	@scripts/test gvisor

test-web: ## only the dashboard in a real browser (as root)
	@scripts/test web

test-vm: ## only the virtual machine with cgroup v2 and systemd (as root)
	@scripts/test vm

test-race: ## only those under the race detector (as root)
	@scripts/test race

test-chaos: ## only short runs of chaos (as root)
	@scripts/test chaos

test-attack: ## only the corpus of attacks, and each defence taken away (as root)
	@scripts/test attack

soak: ## run the Go tests of make check 10 times beside four busy processes; SOAKFLAGS='50 go test -run Claim ./runtime/pool'
	@scripts/soak-tests $(or $(SOAKFLAGS),10)

screenshots: as-root build ## make pictures of the dashboard's pages in docs/screenshots (as root)
	@scripts/web screenshots

lighthouse: as-root build ## have Lighthouse judge the overview; it fails under 95 (as root)
	@scripts/web lighthouse

bench: as-root build ## measure it all beside its floors, in some minutes (as root); BENCHFLAGS='--row claim --quick', CLUSTER=nomad
	@scripts/bench $(CLUSTER) $(BENCHFLAGS)

chaos: as-root build ## kill a server all the time, and judge that nothing is lost, in two minutes (as root); CHAOSFLAGS='--seed 7 --for 30s'; CLUSTER=nomad
	@$(if $(filter nomad,$(CLUSTER)),go build -o bin/nomadtest ./test/nomadtest/cmd,true)
	@go build -o bin/chaos ./test/chaos
	@exec bin/chaos $(if $(filter nomad,$(CLUSTER)),--nomad bin/nomadtest) $(CHAOSFLAGS)

lint: ## run the linters
	@$(LINT) run ./...

generate: ## generate the API's and the clients' code from schema.graphqls; it fails where a field has no access rule
	@$(FAST) go tool gqlgen generate
	@$(FAST) go generate ./client
	@$(FAST) go test -vet=off -run '^TestEvery(FieldHasARule|TypeIsGuarded)$$' ./graph
	@cd examples/go && $(FAST) go generate

baseline: ## promise clients the schema as it is now (BREAKING=yes: even if that breaks an older promise)
	@BREAKING=$(BREAKING) scripts/conformance baseline

release: ## build archives for linux/amd64 and arm64 with checksums and bills of materials in dist/, from a clean tree
	@scripts/release

install: ## install what was built, and the units for systemd, below DESTDIR
	@[ -x bin/rockpool ] || { echo 'there is no bin/rockpool yet: make build' >&2; exit 1; }
	install -D -m 755 bin/rockpool $(DESTDIR)/usr/local/bin/rockpool
	install -D -m 644 -t $(DESTDIR)/etc/systemd/system packaging/rockpool.service packaging/rockpool-helper.service packaging/rockpool-helper.socket
	install -D -m 644 packaging/rockpool-unprivileged.conf $(DESTDIR)/usr/local/share/rockpool/rockpool-unprivileged.conf
	install -D -m 644 packaging/rockpool-sysctl.conf $(DESTDIR)/usr/local/lib/sysctl.d/60-rockpool.conf

clean: ## remove what was built, and ./data
	rm -rf bin dist data
