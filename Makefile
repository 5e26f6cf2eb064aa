# Rockpool's commands. They need Go, a C compiler and make. Go fetches everything else.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help can-build as-root build agent sandbox prober web run dev nomad gvisor check test test-all test-nomad test-gvisor test-web test-vm test-race test-chaos test-attack test-languages soak screenshots lighthouse bench chaos lint generate baseline release install uninstall clean

DATA ?= ./data
CLUSTER ?= local
ARCHES := amd64 arm64
# The go command fails where git fails, for example for root in another user's clone.
VCS := $(if $(shell git rev-parse HEAD 2>/dev/null),auto,false)
# With these tags only the sandbox helper needs C, and builds, tests and linters share the build cache.
# With fewer garbage collections, compilers and linters are a fifth faster.
FAST := GOGC=400 GOMEMLIMIT=2500MiB
GO_BUILD := $(FAST) go build -trimpath -tags=netgo,osusergo -buildvcs=$(VCS)
# Objects compiled from C contain the path of their clone, and a linter in another clone fails on
# it. A flag that differs in each clone keeps these objects out of the shared cache.
LINT := $(FAST) CGO_CPPFLAGS=-I$(CURDIR) go tool -modfile=tools/go.mod golangci-lint

help: ## print this help
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /\1|/' | while IFS='|' read -r name what; do printf '  make %-16s %s\n' "$$name" "$$what"; done

build: agent sandbox prober web ## build bin/rockpool with the dashboard, the agent and the sandbox helper
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

# Flags for a program without libraries, as small as possible.
INIT := -std=gnu17 -Wall -Wextra -O2 -static -nostdlib -ffreestanding -fno-stack-protector -fno-tree-loop-distribute-patterns -fno-asynchronous-unwind-tables -Wl,--build-id=none,-z,noseparate-code,-s

sandbox:
	@echo 'build the sandbox helper'
	@$${CC:-cc} $(INIT) -o local/sandbox/maker/bin/init local/sandbox/maker/init/init.c
	@CGO_ENABLED=1 $(GO_BUILD) -ldflags='-s -w -extldflags=-static' -o local/sandbox/bin/rockpool-sandbox ./local/sandbox/cmd

prober:
	@echo 'build the prober'
	@CGO_ENABLED=0 $(GO_BUILD) -ldflags='-s -w' -o doctor/attack/bin/prober ./doctor/attack/prober

web:
	@scripts/web build

run: as-root build ## build and serve on http://127.0.0.1:8080 with data in ./data (as root)
	@exec bin/rockpool serve --data $(DATA) --on-stop remove

dev: as-root build ## like run, with debug messages in the log (as root)
	@exec bin/rockpool serve --data $(DATA) --on-stop remove --log-level debug

nomad: as-root ## run a real Nomad and print how to use it (as root); NOMADFLAGS='-acl -tls -drivers docker'
	@go build -o bin/nomadtest ./test/nomadtest/cmd && exec bin/nomadtest $(NOMADFLAGS)

gvisor: ## build gVisor's runsc once (about five minutes) and print its path, for the setting gvisor-runtime
	@scripts/gvisor

check: ## format, vet, lint, generated code, pure tests, web components: no root, under 3 minutes
	@scripts/test check

test: ## check, then real sandboxes, the API end to end, third-party clients, examples and pages: about 25 minutes the first time, 10 after (as root)
	@scripts/test test

test-all: ## all phases below, over an hour (as root); CI runs it
	@scripts/test all

test-nomad: ## only the tests with a real Nomad; builds Nomad once (as root)
	@scripts/test nomad

test-gvisor: ## only the tests with gVisor; builds gVisor once (as root)
	@scripts/test gvisor

test-web: ## only the dashboard's tests in a real browser (as root)
	@scripts/test web

test-vm: ## only the tests in a virtual machine with cgroup v2 and systemd (as root)
	@scripts/test vm

test-race: ## only the tests under the race detector (as root)
	@scripts/test race

test-chaos: ## only short chaos runs, which kill servers repeatedly (as root)
	@scripts/test chaos

test-attack: ## only the attack corpus, also with each defence removed (as root)
	@scripts/test attack

test-languages: ## only the programs in all languages that are installed (as root); scripts/needs languages installs more
	@scripts/test languages

soak: ## run the Go tests of make check 10 times while four processes use the CPUs; SOAKFLAGS='50 go test -run Claim ./runtime/pool'
	@scripts/soak-tests $(or $(SOAKFLAGS),10)

screenshots: as-root build ## capture the dashboard's pages in docs/screenshots (as root)
	@scripts/web screenshots

lighthouse: as-root build ## run Lighthouse on the overview page; fails below 95 (as root)
	@scripts/web lighthouse

bench: as-root build ## measure everything and its floors, about ten minutes (as root); BENCHFLAGS='--row claim --quick', CLUSTER=nomad
	@scripts/bench $(CLUSTER) $(BENCHFLAGS)

chaos: as-root build ## kill a server repeatedly for two minutes and check that nothing is lost (as root); CHAOSFLAGS='--seed 7 --for 30s'; CLUSTER=nomad
	@$(if $(filter nomad,$(CLUSTER)),go build -o bin/nomadtest ./test/nomadtest/cmd,true)
	@go build -o bin/chaos ./test/chaos
	@exec bin/chaos $(if $(filter nomad,$(CLUSTER)),--nomad bin/nomadtest) $(CHAOSFLAGS)

lint: ## run the linters
	@$(LINT) run ./...

generate: ## generate code from schema.graphqls, and pages of docs/reference; fails if a field has no access rule
	@$(FAST) go tool gqlgen generate
	@$(FAST) go generate ./client
	@$(FAST) go test -vet=off -run '^TestEvery(FieldHasARule|TypeIsGuarded)$$' ./graph
	@cd examples/go && $(FAST) go generate
	@$(FAST) go test -vet=off -run '^TestReferenceIsCurrent$$' . -update

baseline: ## record the schema as the promise to clients (BREAKING=yes: accept breaking changes)
	@BREAKING=$(BREAKING) scripts/conformance baseline

release: ## build archives for linux/amd64 and arm64, with checksums and SBOMs, in dist/; needs a clean tree
	@scripts/release

install: ## install bin/rockpool and the systemd units below DESTDIR
	@[ -x bin/rockpool ] || { echo 'bin/rockpool is missing: run make build first' >&2; exit 1; }
	install -D -m 755 bin/rockpool $(DESTDIR)/usr/local/bin/rockpool
	install -D -m 644 -t $(DESTDIR)/etc/systemd/system packaging/rockpool.service packaging/rockpool-helper.service packaging/rockpool-helper.socket
	install -D -m 644 packaging/rockpool-unprivileged.conf $(DESTDIR)/usr/local/share/rockpool/rockpool-unprivileged.conf
	install -D -m 644 packaging/rockpool-sysctl.conf $(DESTDIR)/usr/local/lib/sysctl.d/60-rockpool.conf

uninstall: ## undo make install below DESTDIR; data, settings, tokens and the service's users stay
	@[ -n "$(DESTDIR)" ] || ! command -v systemctl >/dev/null || systemctl disable --now rockpool.service rockpool-helper.service rockpool-helper.socket 2>/dev/null || true
	rm -f $(DESTDIR)/usr/local/bin/rockpool $(addprefix $(DESTDIR)/etc/systemd/system/,rockpool.service rockpool-helper.service rockpool-helper.socket) \
		$(DESTDIR)/usr/local/share/rockpool/rockpool-unprivileged.conf $(DESTDIR)/usr/local/lib/sysctl.d/60-rockpool.conf
	@rmdir $(DESTDIR)/usr/local/share/rockpool 2>/dev/null || true
	@[ -n "$(DESTDIR)" ] || ! command -v systemctl >/dev/null || systemctl daemon-reload || true
	@echo 'These stay, if they exist: /var/lib/rockpool (data), /etc/rockpool (settings, tokens), units below /etc/systemd/system/rockpool.service.d, running runners.'
	@echo 'docs/guides/operating.md, "Remove all runners", says how to end the runners before the data is deleted.'

clean: ## remove bin/, dist/ and ./data
	rm -rf bin dist data
