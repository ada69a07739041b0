//go:build faults

package faults

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
	"github.com/merchant-operator/merchant-operator/test/oidctest"
)

func consoleFaults() []fault {
	const promised = "each page says so, no key is lost or half issued, the console works again without help"
	during := func(name string, o outage) fault {
		o.name = name
		return fault{"P11", name, promised, func(t *testing.T) (int, string) { t.Helper(); return tryConsoleOutage(t, o) }}
	}
	return []fault{
		during("the console without Redis", outage{
			begin: func(s *deployment) { s.toRedis.cut() }, end: func(s *deployment) { s.toRedis.restore(s.t) },
		}),
		during("the console without the API", outage{
			begin: func(s *deployment) { s.console.toAPI.cut() }, end: func(s *deployment) { s.console.toAPI.restore(s.t) },
		}),
		during("the console without the answers of the API", outage{
			begin: func(s *deployment) { s.console.toAPI.poison(s.t, "limit_data", "downstream", `{"bytes":3}`) },
			end:   func(s *deployment) { s.console.toAPI.heal() },
		}),
		during("the console without the Kubernetes API", outage{
			begin: func(s *deployment) { s.console.toKube.Cut() }, end: func(s *deployment) { s.console.toKube.Restore() },
		}),
		{
			"P11", "kill -9 of the console between issuing a key and showing it",
			"the key exists and nobody has it; rotating gives one that works", tryKilledConsole,
		},
	}
}

// People of the console. Mallory has no right in the deployment's namespace.
var (
	alice   = oidctest.User{Username: "alice", Password: "a", Name: "Alice"}
	mallory = oidctest.User{Username: "mallory", Password: "m", Name: "Mallory"}
)

// console is a console with Alice, who may do everything to the merchant coffee.
type console struct {
	*process

	deployment *deployment
	toAPI      wire
	provider   *oidctest.Provider
	alice      oidctest.Browser
	url, page  string // origin, and the page of the merchant
}

// openConsole starts it and signs Alice in.
func (s *deployment) openConsole() *console {
	s.t.Helper()
	provider, stop, err := oidctest.New(s.t.TempDir(), alice, mallory)
	s.must(err)
	s.t.Cleanup(func() { _ = stop() })
	s.t.Setenv("OIDC_CLIENT_SECRET", oidctest.ClientSecret)
	toKube, kubeconfig := s.proxy(fixture.ConsoleAccount)
	address, ops, token := s.address(), s.address(), filepath.Join(s.t.TempDir(), "token")
	s.must(os.WriteFile(token, []byte(s.consoleToken()), 0o600))
	memory, err := containerMemory("console")
	s.must(err)
	c := &console{deployment: s, provider: provider, url: "http://" + address, toAPI: newWire(s.t, strings.TrimPrefix(s.replicas[0].internal, "http://"))}
	c.process = &process{name: "console", ops: ops, toKube: toKube, env: memoryEnvironment(memory), args: []string{
		"console", "--kubeconfig", kubeconfig, "--redis-url", s.url, "--drain-delay", "1s", "--console-address", address, "--ops-address", ops,
		"--external-url", c.url, "--internal-url", "http://" + c.toAPI.Listen, "--internal-token-file", token,
		"--oidc-issuer-url", provider.Issuer, "--oidc-client-id", oidctest.ClientID, "--oidc-username-prefix", "oidc:", "--oidc-scopes", "profile",
		"--address-rate", "1000", "--address-burst", "10000",
	}}
	s.t.Cleanup(c.kill)
	c.restart(s.t)
	s.console = c

	s.Merchant("coffee")
	s.allow("oidc:alice")
	c.page = c.url + "/merchants/" + s.Namespace + "/coffee"
	c.alice = c.signIn(alice)
	eventually(s.t, "alice may act", func() bool { return c.alice.Get(s.t, c.page+"/new-key").Status == http.StatusOK })
	return c
}

// signIn returns a browser in which the person has signed in.
func (c *console) signIn(person oidctest.User) oidctest.Browser {
	c.deployment.t.Helper()
	browser := oidctest.NewBrowser(c.deployment.t)
	c.provider.SignIn(c.deployment.t, browser, c.url+"/sign-in", person)
	return browser
}

// allow gives a person of the console all rights of an integrator in the namespace.
func (s *deployment) allow(person string) {
	s.t.Helper()
	s.must(shared.Client.Create(s.t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "integrator"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "merchant-operator-merchant-integrator"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: person}},
	}))
}

func (s *deployment) consoleToken() string {
	s.t.Helper()
	request := &authenticationv1.TokenRequest{}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: kubetest.SystemNamespace, Name: fixture.ConsoleAccount}}
	s.must(shared.Client.SubResource("token").Create(s.t.Context(), account, request))
	return shared.secret(request.Status.Token)
}

func (c *console) issue(name string) oidctest.Page {
	c.deployment.t.Helper()
	return c.alice.Post(c.deployment.t, c.page+"/new-key", url.Values{"name": {name}})
}

// rotate sends the form of a generation; nothing of the old key remains.
func (c *console) rotate(name, generation string) oidctest.Page {
	c.deployment.t.Helper()
	return c.alice.Post(c.deployment.t, c.page+"/keys/"+name+"/rotate", url.Values{"generation": {generation}, "overlap": {"0"}})
}

func (c *console) generation(name string) string {
	c.deployment.t.Helper()
	return c.alice.Get(c.deployment.t, c.page+"/keys/"+name+"/rotate").Hidden("generation")
}

// works rotates a key by its form, as a person does who has none, and checks that it is in force.
func (c *console) works(name string) (key string) {
	s := c.deployment
	s.t.Helper()
	eventuallySees(s.t, "rotating "+name+" gives a key", func() (string, bool) {
		page := c.rotate(name, c.generation(name))
		key = page.Key()
		return fmt.Sprintf("%d %s", page.Status, page.Text), key != ""
	})
	shared.secret(key)
	s.mustCall(http.StatusOK, s.replicas[0].public, http.MethodGet, me, key, "")
	return key
}

// names are those of all ApiKeys.
func (s *deployment) names() (names []string) {
	s.t.Helper()
	var list v1alpha1.ApiKeyList
	s.must(shared.Client.List(s.t.Context(), &list, client.InNamespace(s.Namespace)))
	for _, key := range list.Items {
		names = append(names, key.Name)
	}
	return names
}

// tryConsoleOutage lets Alice look, rotate and issue while something is away, and finish afterwards.
func tryConsoleOutage(t *testing.T, o outage) (int, string) {
	t.Helper()
	s := deploy(t, 1, 0, durable...)
	c := s.openConsole()
	key := shared.secret(c.issue("till").Key())
	s.accepts(s.replicas[0], key)
	stopProbing := probe(t, c.process)
	defer stopProbing()
	rounds, pages, replaced, finished := 2**intensity, 0, 0, 0
	for n := range rounds {
		before := fmt.Sprint(s.generation("till"))
		eventually(t, "the form shows the last rotation", func() bool { return c.generation("till") == before })
		o.begin(s)
		for _, page := range []oidctest.Page{
			c.alice.Get(t, c.url+"/"), c.alice.Get(t, c.page), c.rotate("till", before), c.issue(fmt.Sprintf("new-%d", n)),
		} {
			pages++
			says := page.Status == http.StatusServiceUnavailable && page.Header.Get("Retry-After") != "" && strings.Contains(page.Text, "<h1>")
			shows := page.Status == http.StatusOK && strings.Contains(page.Text, s.Namespace)
			if page.Key() != "" || !says && !shows {
				t.Errorf("%s: %d %s", page.URL, page.Status, page.Text)
			}
		}
		o.end(s)
		eventually(t, "the console works again", func() bool {
			return c.alice.Get(t, c.page).Status == http.StatusOK && fixture.Ready("http://"+c.ops)
		})
		var status int
		eventually(t, "the API answers", func() bool {
			got, err := newCaller().call(s.replicas[0].public, http.MethodGet, me, key, "")
			status = got.Status
			return err == nil && !unavailable(got)
		})
		switch rotated := fmt.Sprint(s.generation("till")) != before; {
		case rotated && status == http.StatusUnauthorized:
			replaced++ // the answer of the rotation was lost
		case rotated || status != http.StatusOK:
			t.Errorf("the old key got %d; rotated: %v", status, rotated)
		}
		for _, name := range s.names() {
			fresh := c.works(name)
			finished++
			if name == "till" {
				key = fresh
			}
		}
	}
	return rounds, fmt.Sprintf("%d pages meanwhile, none without an answer; the key of %d rotations was lost with its answer; %d keys rotated afterwards, all work",
		pages, replaced, finished)
}

// tryKilledConsole kills it when the API has issued the first key of an ApiKey, and its answer is on the way.
func tryKilledConsole(t *testing.T) (int, string) {
	t.Helper()
	s := deploy(t, 1, 0, durable...)
	c := s.openConsole()
	rounds := 2 * *intensity
	for n := range rounds {
		name := fmt.Sprintf("till-%d", n)
		// Each answer is late, also that of a first try before the operator has published the ApiKey, which the console repeats.
		c.toAPI.poison(t, "latency", "downstream", `{"latency":3000}`)
		request, err := http.NewRequest(http.MethodPost, c.page+"/new-key", strings.NewReader("name="+name))
		s.must(err)
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		request.Header.Set("Sec-Fetch-Site", "same-origin")
		ended := make(chan error, 1)
		go func() {
			answer, err := c.alice.Client.Do(request)
			if err == nil {
				_ = answer.Body.Close()
			}
			ended <- err
		}()
		eventually(t, "the API has issued the key", func() bool {
			var key v1alpha1.ApiKey
			err := shared.get(t.Context(), s.Namespace, name, &key)
			return err == nil && key.Status.KeyGeneration > 0 && s.generation(name) > 1
		})
		c.kill()
		if err := <-ended; err == nil {
			t.Error("a killed console has answered")
		}
		c.toAPI.heal()
		c.restart(t)
		if page := c.alice.Get(t, c.page); page.Status != http.StatusOK || !strings.Contains(page.Text, name) {
			t.Errorf("the page does not show %s: %d %s", name, page.Status, page.Text)
		}
		c.works(name)
	}
	return rounds, fmt.Sprintf("%d keys that nobody had, each rotated to one that works; nobody had to sign in again", rounds)
}
