# What people and CI do here. `make` alone prints the list.
SHELL       := bash
.SHELLFLAGS := -euo pipefail -c

# What `make build` stamps and `merchant-operator version` prints.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
# The image that `make build-installer` names, with its tag.
IMG ?= ghcr.io/merchant-operator/merchant-operator:$(VERSION)
# `make test PKG=./apiserver/... ARGS='-run Idempotency -v'` runs a part of the tests; `make run ARGS=--help`.
PKG  ?= ./...
ARGS ?=

TOOL := go tool -modfile=go.tools.mod

.DEFAULT_GOAL := help

.PHONY: help
help: ## Print this list.
	@[[ -t 1 ]] && bold=$$'\033[1m' colour=$$'\033[36m' plain=$$'\033[0m' || bold= colour= plain=; \
	awk -v bold="$$bold" -v colour="$$colour" -v plain="$$plain" 'BEGIN { FS = ":.*## " } \
		/^##@ / { printf "\n%s%s%s\n", bold, substr($$0, 5), plain } \
		/^[a-z-]+:.*## / { printf "  make %s%-17s%s%s\n", colour, $$1, plain, $$2 }' $(MAKEFILE_LIST)
	@echo

##@ Develop

.PHONY: run
run: build kubectl ## Run it all here: Kubernetes API, Redis, operator, two API replicas, dispatcher. Ctrl-C stops it.
	@go build -o bin/ ./hack/devenv ./hack/receiver
	@assets=$(assets); KUBEBUILDER_ASSETS=$$assets exec bin/devenv $(ARGS)

.PHONY: generate
generate: ## Generate the code that follows from the API types.
	$(TOOL) controller-gen object applyconfiguration paths=./api/v1alpha1

.PHONY: manifests
manifests: ## Generate the CRDs from the API types, and the operator's roles from the controllers.
	$(TOOL) controller-gen crd paths=./api/... output:crd:dir=config/crd/bases
	$(TOOL) controller-gen rbac:roleName=merchant-operator,fileName=operator-role.yaml paths=./controllers/... output:rbac:dir=config/rbac

.PHONY: chart-docs
chart-docs: manifests ## Copy CRDs, alerts and dashboard into the chart, and generate its README and schema from values.yaml.
	cp config/crd/bases/*.yaml charts/merchant-operator/files/crds/
	cp config/prometheus/rules.yaml config/prometheus/dashboard.json charts/merchant-operator/files/monitoring/
	go run ./hack/chartschema charts/merchant-operator
	$(TOOL) helm-docs --chart-search-root charts --sort-values-order file --log-level warning

.PHONY: fmt
fmt: ## Format the Go code.
	$(TOOL) golangci-lint fmt

.PHONY: clean
clean: ## Remove what was built. The control plane stays in its cache.
	rm -rf bin dist

##@ Check

.PHONY: test
test: redis nodejs compiler ## Run every test, on a real kube-apiserver and Redis. PKG and ARGS narrow it.
	@assets=$(assets); \
	echo "==> building promtool, which checks the alerts (minutes the first time)"; $(TOOL) promtool --version >/dev/null 2>&1; \
	echo "==> go test -race $(ARGS) $(PKG) (the first run compiles for minutes before it prints)"; \
	KUBEBUILDER_ASSETS=$$assets CGO_ENABLED=1 go test -race -timeout 20m $(ARGS) $(PKG)

.PHONY: test-redis
test-redis: redis ## Run the suites that start a Redis, on the server that REDIS_SERVER names: redis-server, if none.
	@server=$${REDIS_SERVER:-redis-server}; echo "==> the suites that start a Redis, on $$("$$server" --version)"; \
	packages=$$($(redis-packages)); \
	[[ -n $$packages ]] || { echo "no tests import test/redistest" >&2; exit 1; }; \
	$(MAKE) --no-print-directory test PKG="$$packages"

.PHONY: test-valkey
test-valkey: redis ## Run them on Valkey 8, which is fetched if it is missing.
	@server=$$(hack/install.sh valkey); $(MAKE) --no-print-directory test-redis REDIS_SERVER="$$server"

# The packages whose tests start a Redis: those of which the test binary has test/redistest in it.
redis-packages = go list -test -f '{{range .Deps}}{{if eq . "'"$$(go list ./test/redistest)"'"}}{{$$.ImportPath}}{{"\n"}}{{end}}{{end}}' ./... \
	| sed -n 's/\.test$$//p' | paste -sd ' '

.PHONY: bench
bench: redis build ## Measure the API beside its floors and a naive service, in minutes. BENCH_SECONDS is for each measurement.
	@go build -o bin/ ./test/bench
	@assets=$(assets); KUBEBUILDER_ASSETS=$$assets bin/bench api $(ARGS)

.PHONY: bench-operator
bench-operator: build ## Time the operator making 10,000 ApiKeys ready, beside a floor that does the same writes.
	@go build -o bin/ ./test/bench
	@assets=$(assets); KUBEBUILDER_ASSETS=$$assets bin/bench operator $(ARGS)

.PHONY: bench-dispatcher
bench-dispatcher: redis build ## Measure what the dispatcher spends on an event, how late it is, and what it costs at rest.
	@go build -o bin/ ./test/bench
	@assets=$(assets); KUBEBUILDER_ASSETS=$$assets bin/bench dispatcher $(ARGS)

.PHONY: bench-cluster
bench-cluster: redis build ## Measure the API on a Redis Cluster beside a single Redis, check every answer, and weigh what Redis keeps.
	@go build -o bin/ ./test/bench
	@assets=$(assets); KUBEBUILDER_ASSETS=$$assets bin/bench cluster $(ARGS)

.PHONY: bench-directory
bench-directory: redis build ## Measure what 100,000 published keys cost a replica of the API: memory, its start, and requests.
	@go build -o bin/ ./test/bench
	@assets=$(assets); KUBEBUILDER_ASSETS=$$assets bin/bench directory $(ARGS)

COUNT ?= 6
# What runs on each request, or for each published object.
HOT := ./api/apikey ./api/published ./apiserver/clientaddr ./internal/directory ./internal/ratelimit ./internal/session

.PHONY: bench-go
bench-go: ## Measure the hot functions COUNT times each, for benchstat. ARGS='-cpu 1' and such.
	@assets=$(assets); KUBEBUILDER_ASSETS=$$assets go test -run '^$$' -bench . -benchmem -count $(COUNT) $(ARGS) $(HOT)

.PHONY: lint
lint: ## Check style, common mistakes and which package may import which.
	$(TOOL) golangci-lint run
	go -C hack/image tool -modfile="$(CURDIR)/go.tools.mod" golangci-lint run

.PHONY: verify
verify: generate manifests chart-docs lint ## Check that all is generated, tidy, linted and committed, as CI does.
	go vet ./...
	go mod tidy -diff
	$(TOOL) kustomize build config/default >/dev/null
	$(TOOL) helm lint --quiet charts/merchant-operator
	go -C hack/image test ./...
	go -C hack/image mod tidy -diff
	go -C hack/release/tools tool actionlint -shellcheck= -pyflakes=
	@dirty=$$(git status --porcelain); \
	if [[ -n $$dirty ]]; then \
		printf '\nThese files changed, or are not committed yet:\n%s\n' "$$dirty" >&2; \
		git --no-pager diff --stat >&2; \
		exit 1; \
	fi
	@echo "==> verified"

INTENSITY ?= 2
FUZZTIME  ?= 10s
SOAK      ?= 10m

.PHONY: faults
faults: redis ## Try to break what docs/guarantees.md promises; bin/faults.md is a table of it. INTENSITY says how hard, PAGE=yes updates the page.
	@assets=$(assets); mkdir -p bin; rm -f bin/faults.md; \
	KUBEBUILDER_ASSETS=$$assets go test -tags=faults -count=1 -timeout 60m ./test/faults -run 'TestFaults|TestThePageHasEveryFault' $(ARGS) \
		-intensity $(INTENSITY) -table "$(CURDIR)/bin/faults.md" $(if $(PAGE),-page) || failed=$$?; \
	[[ ! -f bin/faults.md ]] || { echo; cat bin/faults.md; }; exit $${failed:-0}

.PHONY: soak
soak: redis ## Charge for SOAK, and show the memory and goroutines of the roles meanwhile.
	@assets=$(assets); KUBEBUILDER_ASSETS=$$assets go test -tags=faults -count=1 -timeout 0 ./test/faults -run TestSoak -v $(ARGS) -soak $(SOAK)

.PHONY: fuzz
fuzz: redis ## Fuzz every parser of what strangers send, each for FUZZTIME.
	@assets=$(assets); export KUBEBUILDER_ASSETS=$$assets; \
	grep -rHoE '^func Fuzz[A-Za-z]+' --include='*_test.go' api apiserver dispatcher internal | while IFS=: read -r file target; do \
		echo "==> $${target#func } in $$(dirname "$$file")"; \
		go test "./$$(dirname "$$file")" -run '^$$' -fuzz "^$${target#func }$$" -fuzztime $(FUZZTIME) </dev/null; \
	done

.PHONY: e2e
e2e: ## Install the chart in a real cluster made for it, try what it promises, and remove the cluster. Root, or docker.
	@test/e2e/run.sh $(ARGS)

##@ Build

.PHONY: build
build: ## Build bin/merchant-operator.
	@echo "==> building bin/merchant-operator $(VERSION) (the first time takes minutes)"
	@go build -ldflags "-X main.version=$(VERSION)" -o bin/merchant-operator .

.PHONY: build-installer
build-installer: ## Write dist/install.yaml, all of config/default in one file. IMG names the image.
	@mkdir -p dist/installer
	@image='$(IMG)'; printf '%s\n' 'resources: [../../config/default]' 'images:' '- name: merchant-operator' \
		"  newName: $${image%:*}" "  newTag: '$${image##*:}'" >dist/installer/kustomization.yaml
	@$(TOOL) kustomize build dist/installer >dist/install.yaml
	@rm -r dist/installer
	@echo "==> dist/install.yaml, of the image $(IMG)"

IMAGE ?= merchant-operator:$(VERSION)

.PHONY: image
image: ## Make the container image, and bin/image.tar. With docker if it answers, else without any such thing.
	@go -C hack/image build -o "$(CURDIR)/bin/image" .
	@bin/image -name $(IMAGE) -version $(VERSION) -output bin/image.tar

.PHONY: release-rehearsal
release-rehearsal: ## Make a release from a clone, into a registry on this machine that is thrown away.
	@hack/release/rehearse.sh

.PHONY: cluster
cluster: ## Make a real cluster of one node on this machine; `bin/cluster down` removes it. Needs root, or docker.
	@hack/cluster/run.sh up

.PHONY: kubectl
kubectl: ## Build kubectl, and link it as bin/kubectl.
	@assets=$(assets); mkdir -p bin; ln -sfn "$$assets/kubectl" bin/kubectl; echo "==> bin/kubectl"

##@ Prepare (the others call these)

.PHONY: controlplane
controlplane: ## Build kube-apiserver, etcd and kubectl into their cache; print where.
	@hack/controlplane/build.sh

.PHONY: redis
redis: ## Install redis-server, if it is missing and REDIS_SERVER names no other.
	@hack/install.sh redis

.PHONY: nodejs
nodejs: ## Install Node.js and npm, if they are missing.
	@hack/install.sh nodejs

.PHONY: compiler
compiler: ## Install a C compiler for the race detector, if it is missing.
	@hack/install.sh compiler

# The directory of the control plane's binaries, built if need be.
assets = $$(hack/controlplane/build.sh)
