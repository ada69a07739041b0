package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/merchant-operator/merchant-operator/hack/receiver/inbox"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/devenvtest"
	"github.com/merchant-operator/merchant-operator/test/mailtest"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

func TestRun(t *testing.T) {
	root := devenvtest.Build(t)
	t.Run("until it is stopped", func(t *testing.T) { testStop(t, root) })
	t.Run("until a server ends", func(t *testing.T) { testServerThatEnds(t, root) })
}

// testStop checks the contract that scripts rely on: .dev/env appears when everything works. After any kind of stop it disappears,
// and nothing keeps running.
func testStop(t *testing.T, root string) {
	t.Helper()
	server, err := redistest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name     string
		env      []string
		redis    string
		pages    []string
		stop     syscall.Signal
		wantExit int
	}{
		{
			name: "a Redis server, SIGTERM", redis: server,
			pages: []string{"README.md", "docs/first-hour.md", "examples/README.md", "docs/test-mode.md", "docs/api.md", "docs/rail.md", "docs/unauthorized.md"},
			stop:  syscall.SIGTERM, wantExit: 0,
		},
		{
			name: "embedded Redis, SIGKILL", env: []string{"PATH=" + t.TempDir(), "REDIS_SERVER="},
			redis: "embedded", stop: syscall.SIGKILL, wantExit: -1,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			run := devenvtest.Start(t, root, test.env...)
			env := run.WaitForEnv(t)
			chargeAndSettle(t, env)
			for _, page := range test.pages {
				t.Run(page, func(t *testing.T) { runPage(t, run, page) })
			}
			if output := run.Output(t); !strings.Contains(output, test.redis) || !strings.Contains(output, "curl -s "+env["API_URL"]) {
				t.Errorf("the banner has no curl for %s, or does not say that Redis is %q:\n%s", env["API_URL"], test.redis, output)
			}

			page, err := http.Get(env["PAYER_URL"])
			if err != nil {
				t.Fatal(err)
			}
			_ = page.Body.Close()
			if page.StatusCode != http.StatusOK || !strings.Contains(run.Output(t), env["PAYER_URL"]) {
				t.Errorf("the banner does not link to a page of a payer: %q, %s", env["PAYER_URL"], page.Status)
			}
			if test.redis == server {
				testRedisThatEnds(t, run, env)
				t.Run("docs/leaked-key.md", func(t *testing.T) { testLeakedKey(t, run, env) })
			}

			second := devenvtest.Start(t, root, test.env...)
			<-second.Ended
			if output := second.Output(t); second.ExitCode() == 0 || !strings.Contains(output, "already") {
				t.Errorf("a second one ended with %d; output:\n%s", second.ExitCode(), output)
			}

			listeners := listeners(t, env)
			if err := run.Process.Signal(test.stop); err != nil {
				t.Fatal(err)
			}
			<-run.Ended
			if run.ExitCode() != test.wantExit {
				t.Errorf("exit code %d, want %d; output:\n%s", run.ExitCode(), test.wantExit, run.Output(t))
			}
			waitUntil(t, "everything has stopped", func() bool {
				_, err := os.Stat(filepath.Join(root, ".dev", "env"))
				return errors.Is(err, fs.ErrNotExist) && !anyListens(listeners)
			})
		})
	}
}

// testRedisThatEnds: a killed Redis is started again, as an operator of a cluster would do it, and begins empty.
func testRedisThatEnds(t *testing.T, run *devenvtest.Run, env map[string]string) {
	t.Helper()
	redis, err := redistest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	var session struct{ SessionID string }
	request(t, http.MethodPost, env["API_URL"]+"/api/v1/sessions", env["API_KEY"], `{"amountCents": 1250}`, http.StatusCreated, &session)
	if err := syscall.Kill(descendants(t, run.Process.Pid)[filepath.Base(redis)], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "make run says that Redis came back empty", func() bool { return strings.Contains(run.Output(t), "Redis runs again and is EMPTY") })
	for _, replica := range []string{env["API_URL"], env["API_URL_2"]} {
		waitUntil(t, "the API works again", func() bool {
			return getStatus(t, replica+"/api/v1/merchant/me", env["API_KEY"]) == http.StatusOK
		})
	}
	if status := getStatus(t, env["API_URL"]+"/api/v1/sessions/"+session.SessionID, env["API_KEY"]); status != http.StatusNotFound {
		t.Errorf("a session of before is answered with %d", status)
	}
	chargeAndSettle(t, env)
}

// testLeakedKey: the commands of the page end a leaked key on every replica, and the till's new one works.
func testLeakedKey(t *testing.T, run *devenvtest.Run, env map[string]string) {
	t.Helper()
	leaked, replicas := env["API_KEY"], []string{env["API_URL"], env["API_URL_2"]}
	for _, replica := range replicas {
		if status := getStatus(t, replica+"/api/v1/merchant/me", leaked); status != http.StatusOK {
			t.Fatalf("before: %s answers the key with %d", replica, status)
		}
	}
	shell := startShell(t, run.Root)
	ask := func(commands string) string {
		return strings.TrimSpace(shell.run(t, "testLeakedKey", command{text: commands}, commands))
	}
	signingSecret := func() string {
		return ask("kubectl get secret acme-coffee-webhook -n shops -o 'jsonpath={.data.secret}'\n")
	}
	ask("set -a; . .dev/env; set +a\nexport PATH=\"$PWD/bin:$PATH\"\n")
	signing := signingSecret()
	shell.runPage(t, "docs/leaked-key.md", leaked)
	for key, want := range map[string]int{
		leaked: http.StatusUnauthorized, ask("kubectl merchant keys reveal acme-till-1 -n shops 2>&-\n"): http.StatusOK,
	} {
		for _, replica := range replicas {
			waitUntil(t, fmt.Sprintf("%s answers %d", replica, want), func() bool { return getStatus(t, replica+"/api/v1/merchant/me", key) == want })
		}
	}
	waitUntil(t, "the webhook has another signing secret", func() bool { return signingSecret() != signing })
}

// getStatus is 0 when nothing answers.
func getStatus(t *testing.T, address, key string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	response, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	_ = response.Body.Close()
	return response.StatusCode
}

// testServerThatEnds: without one of these nothing works, and nothing starts them again.
func testServerThatEnds(t *testing.T, root string) {
	t.Helper()
	for server, log := range map[string]string{"kube-apiserver": "kube-apiserver.log", "receiver": "receiver.log"} {
		t.Run(log, func(t *testing.T) {
			run := devenvtest.Start(t, root)
			run.WaitForEnv(t) // a step of the start that needs the server could fail first
			running := descendants(t, run.Process.Pid)
			pid, runs := running[server]
			if !runs {
				t.Fatalf("no %s in %v", server, running)
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			<-run.Ended
			if output := run.Output(t); run.ExitCode() != 1 ||
				!regexp.MustCompile(`make run: \S+ ended unexpectedly.*; the end of \S+`+log+":\n.+").MatchString(output) {
				t.Errorf("exit code %d, and no end of %s in the output:\n%s", run.ExitCode(), log, output)
			}
			for name, pid := range running {
				if syscall.Kill(pid, 0) == nil {
					t.Errorf("%s still runs", name)
				}
			}
		})
	}
}

// descendants returns the process ids of the programs that a process has started, and those of what these have started.
func descendants(t *testing.T, parent int) map[string]int {
	t.Helper()
	table, err := exec.Command("ps", "-A", "-o", "pid=,ppid=,comm=").Output()
	if err != nil {
		t.Fatal(err)
	}
	children := map[string][][]string{} // of each parent: id, parent, path
	for line := range strings.Lines(string(table)) {
		if fields := strings.Fields(line); len(fields) == 3 {
			children[fields[1]] = append(children[fields[1]], fields)
		}
	}
	found := map[string]int{}
	for parents := []string{strconv.Itoa(parent)}; len(parents) > 0; parents = parents[1:] {
		for _, child := range children[parents[0]] {
			found[filepath.Base(child[2])], _ = strconv.Atoi(child[0])
			parents = append(parents, child[0])
		}
	}
	return found
}

// chargeAndSettle creates a session on one replica, settles it as the sample rail, reads it on the other, and waits for the webhook.
func chargeAndSettle(t *testing.T, env map[string]string) {
	t.Helper()
	var session struct{ SessionID, Status, Reference string }
	request(t, http.MethodPost, env["API_URL"]+"/api/v1/sessions", env["API_KEY"], `{"amountCents": 1250, "customerEmail": "ada@example.com"}`, http.StatusCreated, &session)
	request(t, http.MethodPost, env["INTERNAL_URL"]+"/internal/v1/sessions/"+session.SessionID+"/settlement", env["RAIL_TOKEN"],
		`{"paymentRef": "card-1", "outcome": "COMPLETED", "amountCents": 1250}`, http.StatusOK, nil)
	request(t, http.MethodGet, env["API_URL_2"]+"/api/v1/sessions/"+session.SessionID, env["API_KEY"], "", http.StatusOK, &session)
	if session.Status != "COMPLETED" {
		t.Errorf("the session is %s", session.Status)
	}
	waitUntil(t, "the receiver has the event", func() bool {
		var events []inbox.Event
		request(t, http.MethodGet, strings.TrimSuffix(env["WEBHOOK_SINK_URL"], "/hooks")+"/events", "", "", http.StatusOK, &events)
		return slices.ContainsFunc(events, func(e inbox.Event) bool {
			return e.Type == "session.completed" && e.Verified && strings.Contains(e.Body, session.SessionID)
		})
	})
	waitUntil(t, "the customer has the receipt", func() bool {
		var mails []mailtest.Message
		request(t, http.MethodGet, env["MAIL_SINK_URL"]+"/messages", "", "", http.StatusOK, &mails)
		return slices.ContainsFunc(mails, func(m mailtest.Message) bool {
			return m.To == "ada@example.com" && session.Reference != "" && strings.Contains(m.Text, session.Reference)
		})
	})
}

// waitUntil is generous: on an idle machine everything is much faster.
func waitUntil(t *testing.T, what string, done func() bool) {
	t.Helper()
	await.Until(t, 2*time.Minute, what, done)
}

// listeners are the addresses that env names, the Kubernetes API's among them.
func listeners(t *testing.T, env map[string]string) (hosts []string) {
	t.Helper()
	kubernetes, err := clientcmd.BuildConfigFromFlags("", env["KUBECONFIG"])
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{kubernetes.Host, env["API_URL"], env["API_URL_2"], env["INTERNAL_URL"], env["CONSOLE_URL"], env["BANK_URL"], env["REDIS_URL"], env["WEBHOOK_SINK_URL"]} {
		parsed, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		if !anyListens([]string{parsed.Host}) {
			t.Errorf("nothing listens on %s", address)
		}
		hosts = append(hosts, parsed.Host)
	}
	return hosts
}

// anyListens says whether one of the addresses accepts connections.
func anyListens(hosts []string) bool {
	for _, host := range hosts {
		if conn, err := net.DialTimeout("tcp", host, time.Second); err == nil {
			_ = conn.Close()
			return true
		}
	}
	return false
}

func request(t *testing.T, method, address, key, body string, want int, answer any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	response, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != want {
		t.Fatalf("%s %s: %s: %s", method, address, response.Status, text)
	}
	if answer != nil {
		if err := json.Unmarshal(text, answer); err != nil {
			t.Fatal(err)
		}
	}
}

func TestClaim_RemovesLeftovers(t *testing.T) {
	directory := filepath.Join(t.TempDir(), ".dev")
	leftover := filepath.Join(directory, "logs", "old.log")
	if err := errors.Join(os.MkdirAll(filepath.Dir(leftover), 0o700), os.WriteFile(leftover, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	release, err := claim(directory)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if _, err := os.Stat(leftover); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is still there (%v)", leftover, err)
	}
	if lock, err := os.ReadFile(filepath.Join(directory, "lock")); err != nil || string(lock) != strconv.Itoa(os.Getpid()) {
		t.Errorf("the lock holds %q (%v), want process %d", lock, err, os.Getpid())
	}
}

func TestQuote_InShell(t *testing.T) {
	for _, value := range []string{
		"http://127.0.0.1:8080", "/home/jo/my projects/it's", `$HOME "x" \ y`, "a;b", "",
	} {
		output, err := exec.Command("sh", "-c", "VALUE="+quote(value)+`; printf %s "$VALUE"`).Output()
		if err != nil || string(output) != value {
			t.Errorf("quote(%q) = %s, which a shell reads as %q (%v)", value, quote(value), output, err)
		}
	}
	if plain := "redis://127.0.0.1:6379/0"; quote(plain) != plain {
		t.Errorf("quote(%q) = %s, want it unchanged: not every reader is a shell", plain, quote(plain))
	}
}

// startScript runs a shell script as a role. pids returns the lines that it has printed.
func startScript(t *testing.T, fail context.CancelCauseFunc, script string) (stop func() error, pids func() []string) {
	t.Helper()
	p := &programs{logs: t.TempDir(), fail: fail}
	stop, err := p.keep("role", "/bin/sh", "-c", script)
	if err != nil {
		t.Fatal(err)
	}
	return stop, func() []string {
		log, err := os.ReadFile(filepath.Join(p.logs, "role.log"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(string(log))
	}
}

func TestRole_KilledIsRestarted(t *testing.T) {
	ctx, fail := context.WithCancelCause(t.Context())
	stop, pids := startScript(t, fail, "echo $$; exec sleep 600")
	kill := func(n int, signal syscall.Signal) error {
		pid, err := strconv.Atoi(pids()[n])
		return errors.Join(err, syscall.Kill(pid, signal))
	}
	waitUntil(t, "it runs", func() bool { return len(pids()) == 1 })
	if err := kill(0, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "it runs again", func() bool { return len(pids()) == 2 })
	if err := stop(); err != nil {
		t.Error(err)
	}
	if err := kill(1, 0); err == nil {
		t.Error("it still runs after stop")
	}
	if ctx.Err() != nil {
		t.Error(context.Cause(ctx))
	}
}

func TestRole_CannotRunEndsEnvironment(t *testing.T) {
	ctx, fail := context.WithCancelCause(t.Context())
	stop, _ := startScript(t, fail, "echo broken; exit 3")
	<-ctx.Done()
	if cause := context.Cause(ctx).Error(); !strings.Contains(cause, "broken") || !strings.Contains(cause, "exit status 3") {
		t.Errorf("the error is %s", cause)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
