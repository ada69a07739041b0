// Package examples runs the programs of examples/ against the whole product, seen through a proxy that loses answers.
package examples

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/controllers"
	"github.com/merchant-operator/merchant-operator/dispatcher"
	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/logtest"
	"github.com/merchant-operator/merchant-operator/test/repository"
)

// example is the program in one language.
type example struct {
	name    string
	command []string
	listens bool // it serves webhooks; without that it verifies one at a time
}

var (
	shared   *fixture.Installation
	api      fixture.Replica
	examples []example
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := runTests(m); err != nil {
		log.Fatal(err)
	}
}

// runTests leaves the tests' own result to the testing package, which reports it when TestMain returns.
func runTests(m *testing.M) (err error) {
	// The programs wait for most of the time. One after the other they would take minutes.
	if err := flag.Set("test.parallel", "16"); err != nil {
		return err
	}
	for program, target := range map[string]string{"curl": "examples", "openssl": "examples", "python3": "examples", "node": "nodejs"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("the examples need %s; run `make %s` to install it", program, target)
		}
	}
	directory, err := os.MkdirTemp("", "examples")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(directory)) }()
	compiled := filepath.Join(directory, "merchant")
	if err := repository.Build(compiled, "examples/go"); err != nil {
		return err
	}
	examples = []example{
		{"curl", []string{"bash", repository.Path("examples", "curl", "merchant.sh")}, false},
		{"Go", []string{compiled}, true},
		{"Node", []string{"node", repository.Path("examples", "node", "merchant.mjs")}, true},
		{"Python", []string{"python3", repository.Path("examples", "python", "merchant.py")}, true},
	}
	shared, err = fixture.Install()
	defer func() { err = errors.Join(err, shared.Close()) }()
	if err != nil {
		return err
	}
	if _, err := shared.StartOperator("operator", func(o *controllers.Options) { o.LeaderElect = false }); err != nil {
		return err
	}
	if api, err = shared.StartAPIServer("apiserver", func(*apiserver.Options) {}); err != nil {
		return err
	}
	if _, err := shared.StartDispatcher("dispatcher", func(*dispatcher.Options) {}); err != nil {
		return err
	}
	m.Run()
	return nil
}

// A developer reads an example whole before copying it. Because they are read here, `go test` notices when they change.
func TestExamples_Short(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(repository.Path("examples", "*", "*"))
	if err != nil || len(files) < len(examples) {
		t.Fatalf("found %v: %v", files, err)
	}
	for _, file := range files {
		if filepath.Ext(file) == "" { // the directory of compiled Python
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if lines := strings.Count(string(text), "\n"); lines > 180 {
			t.Errorf("%s has %d lines", file, lines)
		}
	}
}

// program is a running example.
type program struct {
	stdout, stderr logtest.Buffer

	command *exec.Cmd
	ended   chan struct{}
}

// start runs an example with variables in its environment, until the test ends.
func start(t *testing.T, e example, env []string, arguments ...string) *program {
	t.Helper()
	p := &program{command: exec.Command(e.command[0], append(e.command[1:], arguments...)...), ended: make(chan struct{})}
	p.command.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}, env...) // and no proxy
	p.command.Stdout, p.command.Stderr = &p.stdout, &p.stderr
	p.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.command.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-p.command.Process.Pid, syscall.SIGKILL) // also what a shell has started
		<-p.ended
	})
	return p
}

// exit waits for the end and returns the exit code.
func (p *program) exit(t *testing.T) int {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(fixture.Patience):
		t.Errorf("the program does not end\n%s\n%s", &p.stdout, &p.stderr)
		return -1
	}
	return p.command.ProcessState.ExitCode()
}

// lines are those of the standard output.
func (p *program) lines() []string {
	return strings.FieldsFunc(p.stdout.String(), func(r rune) bool { return r == '\n' })
}

// shop is a merchant with an API key and a rail.
type shop struct {
	fixture.Tenant

	merchant  *v1alpha1.Merchant
	key, rail string
}

func newShop(t *testing.T, change ...func(*v1alpha1.Merchant)) shop {
	t.Helper()
	s := shop{Tenant: fixture.NewTenant(t, shared.Client)}
	s.merchant = s.Merchant("coffee", change...)
	_, s.key = s.ApiKey("till", "coffee", func(k *v1alpha1.ApiKey) { k.Spec.Permissions = v1alpha1.Permissions() })
	s.rail = s.RailToken()
	s.Eventually("the API accepts the key", func() bool { return s.call(http.MethodGet, fixture.Me, "").Status == http.StatusOK })
	return s
}

func (s shop) call(method, path, body string, headers ...string) fixture.Answer {
	s.T.Helper()
	return s.send(api.Public, method, path, s.key, body, headers...)
}

func (s shop) send(base, method, path, bearer, body string, headers ...string) fixture.Answer {
	s.T.Helper()
	answer, err := fixture.Call(http.DefaultClient, base, method, path, bearer, body, headers...)
	if err != nil {
		s.T.Fatal(err)
	}
	return answer
}

// create charges 12.50, as the examples do for this order.
func (s shop) create(order string) (session string) {
	s.T.Helper()
	answer := s.call(http.MethodPost, fixture.Sessions, fmt.Sprintf(`{"orderRef": %q, "amountCents": 1250}`, order), "Idempotency-Key", "order-"+order)
	if answer.Status != http.StatusCreated {
		s.T.Fatalf("%d %s", answer.Status, answer.Raw)
	}
	return answer.Text("sessionId")
}

// settle reports a payment of 12.50 by the rail.
func (s shop) settle(session, outcome string) {
	s.T.Helper()
	answer := s.send(api.Internal, http.MethodPost, "/internal/v1/sessions/"+session+"/settlement", s.rail,
		fmt.Sprintf(`{"paymentRef": "card-%s", "outcome": %q, "amountCents": 1250}`, session, outcome))
	if answer.Status != http.StatusOK || answer.Body["applied"] != true {
		s.T.Fatalf("%d %s", answer.Status, answer.Raw)
	}
}

// charge starts a charge of 12.50 through a proxy.
func (s shop) charge(e example, url, order string, env ...string) *program {
	s.T.Helper()
	return start(s.T.(*testing.T), e, append(env, "API_URL="+url, "API_KEY="+s.key), "charge", order, "1250")
}

var printedSession = regexp.MustCompile(`(?m)^session (ps_[0-9A-Za-z]+)$`)

// session waits until a program has printed its session.
func (s shop) session(p *program) string {
	s.T.Helper()
	var found []string
	s.Eventually("the program prints its session", func() bool {
		select {
		case <-p.ended: // and all that it printed has been read
			if !printedSession.MatchString(p.stdout.String()) {
				s.T.Fatalf("it ended without a session\n%s\n%s", &p.stdout, &p.stderr)
			}
		default:
		}
		found = printedSession.FindStringSubmatch(p.stdout.String())
		return found != nil
	})
	return found[1]
}
