# SPDX-License-Identifier: Apache-2.0
#
# Targets for daily work. No logic: packages and Go come from hack/bootstrap
# and hack/go, the stages of the tests are in hack/check.

# One setting for every build: Go's build cache is keyed by these, and a second
# setting would build all of Kubernetes a second time.
export CGO_ENABLED := 0
export GOFLAGS := -trimpath -buildvcs=false
export GOWORK := off

GO := hack/go
CHECK := $(GO) run ./hack/check

# The one place of the version is the chart, which liqoctl carries and which names the image.
VERSION := $(shell sed -n 's/^appVersion: "\(.*\)"$$/\1/p' deployments/liqo/Chart.yaml)
IMAGE := localhost/liqo:$(VERSION)
MOVER := localhost/liqo-mover:$(VERSION)
# gRPC's trace pages bring html/template, whose calls by name keep every method of every type: 10 MB in each process's file.
TAGS := -tags grpcnotrace
# Functions follow each other without gaps, not at multiples of 32 bytes: 0.9 MB less. Those of assembly that need an alignment state it themselves.
LINK := -s -w -funcalign=1 -X liqo.io/liqo/internal/kube/version.Version=$(VERSION)

comma := ,
space := $(subst ,, )

.PHONY: help quickstart example playground down build image mover demo-images stateful-images ingress-images program-images traffic helm faults release generate contract test test-long unit race lint verify symbols vulnerabilities e2e fuzz soak bench bench-network bench-offload mutants clean prerequisites

help: ## show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

quickstart: prerequisites ## the Quick Start on two real clusters of this machine, from nothing to a shop that runs in both (root)
	@hack/quickstart build
	@hack/quickstart

example: prerequisites ## run the example NAME on real clusters of this machine and leave it running; without NAME it lists them (root)
	@$(GO) run ./hack/example $(NAME)

playground: image mover ## start two real Kubernetes clusters on this machine (root); takes what is missing from Debian
	bin/playground up quick-start
	bin/playground load bin/liqo-image.tar
	bin/playground load bin/mover-image.tar
	@echo 'Liqo on both, with the KUBECONFIG above:  for c in rome milan; do bin/liqoctl install --context $$c --cluster-name $$c; done'

down: ## take the clusters away without a trace (root)
	bin/playground down

build: prerequisites ## build bin/liqo, bin/liqoctl and bin/playground
	$(GO) build -C playground -ldflags '-s -w' -o ../bin/playground .
	$(GO) build $(TAGS) -ldflags '$(LINK)' -o bin/ ./cmd/liqo ./cmd/liqoctl

image: build ## build the image of all roles, bin/liqo-image.tar, without Docker
	bin/playground image build --binary bin/liqo --name $(IMAGE) -o bin/liqo-image.tar

mover: build ## build the image of the pods that copy a volume which moves, bin/mover-image.tar (from Debian)
	bin/playground image build --debian rsync,openssh-server,openssh-client,dash,coreutils,sed --program /bin/dash,/bin/sed,/bin/cat,/bin/cp,/bin/date,/bin/mkdir,/bin/sleep,/bin/sync,/usr/bin/tail,/usr/bin/rsync,/usr/bin/ssh,/usr/sbin/sshd --name $(MOVER) -o bin/mover-image.tar

demo-images: build ## build the images of the Quick Start's demo, bin/demo-image.tar and bin/redis-image.tar (from Debian)
	$(GO) build $(TAGS) -ldflags '-s -w' -o bin/ ./examples/quick-start/shop
	bin/playground image build --binary bin/shop --name localhost/shop:dev -o bin/demo-image.tar
	bin/playground image build --debian redis-server --program /usr/bin/redis-server,/usr/bin/redis-cli --name localhost/redis:dev -o bin/redis-image.tar

stateful-images: build ## build the image of the example stateful-applications, bin/galera-image.tar (from Debian)
	bin/playground image build --name localhost/galera:dev -o bin/galera-image.tar \
		--debian mariadb-server,mariadb-client,galera-4,galera-arbitrator-4,bash,dash,coreutils,findutils,grep,sed,mawk,procps,util-linux,iproute2,rsync \
		--program /usr/sbin/mariadbd,/usr/bin/mariadb,/usr/bin/garbd,/usr/bin/my_print_defaults,/usr/lib/galera/libgalera_smm.so,/usr/bin/rsync,/usr/bin/ss,/usr/bin/bash,/usr/bin/dash \
		--program /usr/bin/grep,/usr/bin/sed,/usr/bin/mawk,/usr/bin/find,/usr/bin/xargs,/usr/bin/ps,/usr/bin/getopt \
		--program $(subst $(space),$(comma),$(addprefix /usr/bin/,basename cat chmod chown cksum cp cut date dd dirname env head id ln ls mkdir mktemp mv readlink rm rmdir sleep sort stat sync tail test timeout touch tr uname wc whoami)) \
		--file '/usr/bin/sh,/usr/bin/wsrep_sst_*,/usr/share/mysql/*.sql,/usr/share/mysql/english'

ingress-images: build ## build the images of the example global-ingress, bin/nginx-image.tar and bin/gdnsd-image.tar (from Debian)
	bin/playground image build --name localhost/nginx:dev -o bin/nginx-image.tar --debian nginx --program /usr/sbin/nginx
	bin/playground image build --name localhost/gdnsd:dev -o bin/gdnsd-image.tar --debian gdnsd --program /usr/sbin/gdnsd,/usr/bin/gdnsdctl

program-images: build helm stateful-images ## build the programs of test/programs and their images, bin/operator-image.tar and others
	$(GO) build -C test/programs/operator -ldflags '-s -w' -o ../../../bin/ .
	$(GO) build -C test/programs/prometheus -tags remove_all_sd,enable_kubernetes_sd,enable_dns_sd -ldflags '-s -w' -o ../../../bin/ github.com/prometheus/prometheus/cmd/prometheus
	$(GO) build -C test/programs/certmanager -ldflags '-s -w' -o ../../../bin/cert-manager/ $(addprefix github.com/cert-manager/cert-manager/cmd/,controller webhook cainjector)
	$(GO) build -C test/programs/traefik -ldflags '-s -w' -o ../../../bin/ github.com/traefik/traefik/v3/cmd/traefik
	bin/playground image build --binary bin/traefik --name localhost/traefik:dev -o bin/traefik-image.tar
	bin/playground image build --binary bin/cert-manager/controller --name localhost/cert-manager-controller:dev -o bin/cert-manager-controller-image.tar
	bin/playground image build --binary bin/cert-manager/webhook --name localhost/cert-manager-webhook:dev -o bin/cert-manager-webhook-image.tar
	bin/playground image build --binary bin/cert-manager/cainjector --name localhost/cert-manager-cainjector:dev -o bin/cert-manager-cainjector-image.tar
	bin/playground image build --binary bin/operator --name localhost/operator:dev -o bin/operator-image.tar
	bin/playground image build --binary bin/prometheus --name localhost/prometheus:dev -o bin/prometheus-image.tar
	bin/playground image build --binary $$(bin/playground assets)/etcd --name localhost/etcd:dev -o bin/etcd-image.tar
	bin/playground image build --name localhost/redis:dev -o bin/redis-image.tar --debian redis-server --program /usr/bin/redis-server,/usr/bin/redis-cli
	bin/playground image build --name localhost/nginx:dev -o bin/nginx-image.tar --debian nginx --program /usr/sbin/nginx

traffic: build ## build the traffic of the network's tests, bin/traffic and bin/traffic-image.tar
	$(GO) build -ldflags '-s -w' -o bin/ ./test/traffic
	$(GO) build -ldflags '-s -w' -o bin/wireguard-go golang.zx2c4.com/wireguard
	bin/playground image build --binary bin/traffic --name localhost/traffic:dev -o bin/traffic-image.tar

helm: prerequisites ## build bin/helm, of the version whose library liqoctl contains
	$(GO) build -ldflags '-s -w' -o bin/ helm.sh/helm/v4/cmd/helm

faults: image ## build what the tests of faults run: bin/history, and the pods' bin/stamp-image.tar
	$(GO) build $(TAGS) -ldflags '-s -w' -o bin/ ./test/history ./test/stamp
	bin/playground image build --binary bin/stamp --name localhost/stamp:dev -o bin/stamp-image.tar

release: prerequisites ## build the files of a release from the last commit into bin/release, for the image IMAGE_NAME of a registry; see SECURITY.md
	$(GO) run ./hack/release --image '$(IMAGE_NAME)'

generate: prerequisites ## write what is made from types, marks in the code, chart values and tests
	$(GO) run ./hack/generate
	$(GO) run ./hack/contract

contract: prerequisites ## write docs/contract.md: what users rely on, the tests that show it, and their last results
	$(GO) run ./hack/contract

test: prerequisites ## the gate: conventions, unit tests, race detector, lint, and as root the suites on six real clusters in their short form
	VULNDB=$(VULNDB) $(CHECK) all

test-long: prerequisites ## everything that takes longer, suite by suite: SUITE=network,e2e,fuzz,...; continues where it was interrupted (root)
	SUITE=$(SUITE) TIME=$(TIME) $(CHECK) long

unit: prerequisites ## unit tests of all modules, without API servers
	$(CHECK) unit

race: prerequisites ## packages that start goroutines, hold a lock or use a channel, with API servers and the race detector
	$(CHECK) race

lint: prerequisites ## gofumpt, go vet and staticcheck
	$(CHECK) lint

verify: prerequisites ## the conventions of the repository (conventions_test.go)
	$(CHECK) conventions

symbols: prerequisites ## build the programs with the names of their functions into bin/symbols, for the scan
	$(GO) build -C playground -o ../bin/symbols/playground .
	$(GO) build $(TAGS) -o bin/symbols/ ./cmd/liqo ./cmd/liqoctl

vulnerabilities: prerequisites ## known vulnerabilities in what our programs link, by the database file VULNDB (vulndb.zip of the Go project)
	VULNDB=$(VULNDB) $(CHECK) vulnerabilities

e2e: prerequisites ## the journey on two real clusters (root)
	$(CHECK) e2e

fuzz: prerequisites ## every fuzz target, for TIME each (10m)
	TIME=$(or $(TIME),10m) $(CHECK) fuzz

soak: prerequisites ## a busy installation for TIME (1h): random actions of users and random faults, of SEED or another one each time (root)
	TIME=$(or $(TIME),1h) SEED=$(SEED) $(CHECK) soak

bench: prerequisites ## measure the playground, see docs/benchmarks.md (root)
	$(CHECK) bench

bench-network: prerequisites ## measure the network of two clusters beside bare WireGuard, see docs/benchmarks.md (root)
	$(CHECK) bench-network

bench-offload: prerequisites ## measure offloading beside the same pods without us, see docs/benchmarks.md (root)
	$(CHECK) bench-offload

mutants: prerequisites ## change one condition at a time in packages that decide, or in PACKAGES, and report which changes no test notices
	$(GO) run ./hack/mutants $(PACKAGES)

clean: ## remove what was built here; caches of Go and of the playground stay
	rm -rf bin

prerequisites: ## install missing Debian packages (root) and Go
	@hack/bootstrap
