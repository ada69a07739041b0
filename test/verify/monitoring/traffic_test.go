package monitoring

import (
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/devenvtest"
	"github.com/merchant-operator/merchant-operator/test/fixture"
)

// namespace is where the roles of a cluster run.
const namespace = "merchant-operator-system"

// traffic uses the product of `make run`, well and badly.
type traffic struct {
	t   *testing.T
	env map[string]string
	// key is of a merchant whose webhook answers 410 and that may send few requests.
	key string
}

const goneMerchant = `
apiVersion: merchant-operator.io/v1alpha1
kind: Merchant
metadata: {name: gone, namespace: shops}
spec:
  displayName: Gone
  rateLimit: {requestsPerSecond: 5, burst: 10}
  webhook: {url: %q}
---
apiVersion: merchant-operator.io/v1alpha1
kind: ApiKey
metadata: {name: gone, namespace: shops}
spec:
  merchantRef: {name: gone}
  delivery: {secretName: gone}
`

func newTraffic(t *testing.T, run *devenvtest.Run) *traffic {
	t.Helper()
	tr := &traffic{t: t, env: run.WaitForEnv(t)}
	gone := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) }))
	t.Cleanup(gone.Close)
	kubectl := func(input string, arguments ...string) string {
		command := exec.CommandContext(t.Context(), filepath.Join(run.Root, "bin", "kubectl"), append([]string{"--kubeconfig", tr.env["KUBECONFIG"]}, arguments...)...)
		command.Stdin = strings.NewReader(input)
		output, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("kubectl %v: %v\n%s", arguments, err, output)
		}
		return string(output)
	}
	kubectl(fmt.Sprintf(goneMerchant, gone.URL), "apply", "-f", "-")
	kubectl("", "wait", "--for=condition=Ready", "apikey/gone", "--timeout=60s")
	key, err := base64.StdEncoding.DecodeString(kubectl("", "get", "secret", "gone", "-o", "jsonpath={.data.apiKey}"))
	if err != nil {
		t.Fatal(err)
	}
	tr.key = string(key)
	for _, replica := range []string{"API_URL", "API_URL_2"} {
		await.Until(t, patience, "the key works", func() bool {
			return tr.call(tr.env[replica], http.MethodGet, fixture.Me, tr.key, "").Status != http.StatusUnauthorized
		})
	}
	return tr
}

// send makes every metric of the dashboard count something.
func (tr *traffic) send() {
	tr.t.Helper()
	api := tr.env["API_URL"]
	settle := func(id, token, payment string) {
		tr.call(tr.env["INTERNAL_URL"], http.MethodPost, "/internal/v1/sessions/"+id+"/settlement", token,
			fmt.Sprintf(`{"paymentRef": %q, "outcome": "COMPLETED", "amountCents": 1250}`, payment))
	}
	paid, unpaid := tr.charge(tr.env["API_KEY"]), tr.charge(tr.env["API_KEY"])
	if paid == "" || unpaid == "" {
		return // over the merchant's limit for a moment
	}
	settle(paid, tr.env["RAIL_TOKEN"], "card-1")
	settle(paid, tr.env["RAIL_TOKEN"], "card-2") // late
	settle(paid, "not.a.token", "card-3")
	tr.call(tr.env["CONSOLE_URL"], http.MethodGet, "/signed-out", "", "")
	tr.call(api, http.MethodGet, fixture.Sessions+"/"+paid, "not a key", "")
	tr.expire(unpaid)

	if id := tr.charge(tr.env["TEST_API_KEY"]); id != "" {
		tr.call(api, http.MethodPost, fixture.Sessions+"/"+id+"/cancel", tr.env["TEST_API_KEY"], "")
	}

	if fresh := tr.call(api, http.MethodPost, fixture.Rotate, tr.key, "").Text("fullKey"); fresh != "" {
		tr.key = fresh
	}
	if id := tr.charge(tr.key); id != "" { // else this merchant is over its limit
		tr.call(api, http.MethodPost, fixture.Sessions+"/"+id+"/cancel", tr.key, "")
	}

	// What no role would write there: a request gets an error.
	damaged := session.NewID("aaaaaaaaaaaa", false)
	tr.redis(fmt.Sprintf("SET %ssession:%s text", redis.KeyspaceOf(damaged.Bucket()), damaged))
	tr.call(api, http.MethodGet, "/api/v1/public/sessions/"+damaged.String(), "", "")
}

// charge returns the id of a new session, or nothing when the merchant is over its limit.
func (tr *traffic) charge(key string) string {
	return tr.call(tr.env["API_URL"], http.MethodPost, fixture.Sessions, key, `{"amountCents": 1250, "customerEmail": "ada@example.com"}`).Text("sessionId")
}

func (tr *traffic) call(base, method, path, bearer, body string) fixture.Answer {
	tr.t.Helper()
	answer, err := fixture.Call(http.DefaultClient, base, method, path, bearer, body)
	if err != nil {
		tr.t.Fatal(err)
	}
	return answer
}

// expire makes a session due, which takes a minute without reaching into Redis.
func (tr *traffic) expire(id string) {
	parsed, err := session.ParseID(id)
	if err != nil {
		tr.t.Fatal(err)
	}
	bucket := redis.KeyspaceOf(parsed.Bucket())
	past := time.Now().Add(-time.Second).UnixMilli()
	tr.redis(fmt.Sprintf("HSET %ssession:%s x %d", bucket, id, past))
	tr.redis(fmt.Sprintf("ZADD %sexpiry %d %s", bucket, past, id))
}

// redis sends a command and reads the beginning of its answer.
func (tr *traffic) redis(command string) {
	tr.t.Helper()
	address, err := url.Parse(tr.env["REDIS_URL"])
	if err != nil {
		tr.t.Fatal(err)
	}
	conn, err := net.Dial("tcp", address.Host)
	if err != nil {
		tr.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := fmt.Fprintf(conn, "%s\r\n", command); err != nil {
		tr.t.Fatal(err)
	}
	answer := make([]byte, 100)
	if n, err := conn.Read(answer); err != nil || answer[0] == '-' {
		tr.t.Fatalf("%s: %s (%v)", command, answer[:n], err)
	}
}
