# SPDX-License-Identifier: Apache-2.0
#
# Names for what people do here. No logic: packages and Go come from hack/bootstrap
# and hack/go, the stages of the tests are in hack/check.

# One setting for every build: Go's build cache is keyed by these, and a second
# setting would build all of Kubernetes a second time.
export CGO_ENABLED := 0
export GOFLAGS := -trimpath -buildvcs=false
export GOWORK := off

GO := hack/go
CHECK := $(GO) run ./hack/check

.PHONY: help playground down build test unit lint verify e2e bench clean prerequisites

help: ## show this list
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

playground: build ## start two real Kubernetes clusters on this machine (root); takes what is missing from Debian
	bin/playground up quick-start

down: ## take the clusters away without a trace (root)
	bin/playground down

build: prerequisites ## build bin/playground; it builds the programs of a cluster when first used
	$(GO) build -C playground -ldflags '-s -w' -o ../bin/playground .

test: prerequisites ## everything: unit, laws, lint, API servers, and as root the end-to-end tests
	$(CHECK) all

unit: prerequisites ## unit tests of all modules, without API servers
	$(CHECK) unit

lint: prerequisites ## gofumpt, go vet and staticcheck
	$(CHECK) lint

verify: prerequisites ## the laws of the repository (house_test.go)
	$(CHECK) laws

e2e: prerequisites ## end-to-end tests of the playground (root)
	$(CHECK) e2e

bench: prerequisites ## measure the playground, see docs/benchmarks.md (root)
	$(CHECK) bench

clean: ## remove what was built here; caches of Go and of the playground stay
	rm -rf bin

prerequisites: ## install missing Debian packages (root) and Go
	@hack/bootstrap
