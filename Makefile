# Rockpool's commands. They need Go, a C compiler and make; Go fetches the rest.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help build agent sandbox run dev test lint generate clean

DATA ?= ./data
ARCHES := amd64 arm64
# Go fails where git refuses, for example for root in another user's clone.
VCS := $(if $(shell git rev-parse HEAD 2>/dev/null),auto,false)
GO_BUILD := go build -trimpath -buildvcs=$(VCS)
LINT := go tool -modfile=tools/go.mod golangci-lint

help: ## print this
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1|/' | while IFS='|' read -r name what; do printf '  make %-10s %s\n' "$$name" "$$what"; done

build: agent sandbox ## build bin/rockpool with all it embeds
	CGO_ENABLED=0 $(GO_BUILD) -ldflags='-s -w' -o bin/rockpool .

agent:
	@for arch in $(ARCHES); do \
		echo "build the agent for linux/$$arch"; \
		CGO_ENABLED=0 GOOS=linux GOARCH=$$arch $(GO_BUILD) -ldflags='-s -w' -o agent/embedded/bin/agent-linux-$$arch ./agent/cmd || exit 1; \
	done

sandbox:
	@scripts/needs cc
	CGO_ENABLED=1 $(GO_BUILD) -tags netgo,osusergo -ldflags='-s -w -extldflags=-static' -o local/sandbox/bin/rockpool-sandbox ./local/sandbox/cmd

run: build ## serve on http://127.0.0.1:8080 with warm runners, data in ./data (as root)
	@scripts/needs root
	@exec bin/rockpool serve --data $(DATA)

dev: build ## serve as run does, with everything in the log
	@scripts/needs root
	@exec bin/rockpool serve --data $(DATA) --log-level debug

test: ## run every check and test, with real sandboxes (as root)
	@scripts/test

lint: ## run the linters
	@$(LINT) run ./...

generate: ## generate the API's code from schema.graphqls
	@go tool gqlgen generate

clean: ## remove what was built, and ./data
	rm -rf bin data
