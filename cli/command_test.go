package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/cli/terminal"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/logtest"
)

func allCommands(cmd *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{cmd}
	for _, sub := range cmd.Commands() {
		all = append(all, allCommands(sub)...)
	}
	return all
}

func root() *cobra.Command { return newCommand("v1.2.3", genericiooptions.NewTestIOStreamsDiscard()) }

// shops is the tenant of the examples, with the id of a session that is paid.
func shops(t *testing.T) (n fixture.Tenant, paid string) {
	t.Helper()
	n = fixture.Tenant{T: t, Kube: installation.Client, Namespace: "shops"}
	if err := n.Kube.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: n.Namespace}}); err != nil {
		t.Fatal(err)
	}
	n.Merchant("acme-coffee")
	_, key := n.ApiKey("acme-till-1", "acme-coffee", func(k *v1alpha1.ApiKey) { k.Spec.Permissions = v1alpha1.Permissions() })
	n.ApiKey("acme-test-1", "acme-coffee", func(k *v1alpha1.ApiKey) { k.Spec.Mode = v1alpha1.ModeTest })
	n.Eventually("the API accepts the key", func() bool { return me(t, key, anywhere) == 200 })
	created, err := fixture.Call(fixture.Insecure, replica.Public, http.MethodPost, fixture.Sessions, key, `{"amountCents":1250,"orderRef":"1001"}`)
	if err != nil {
		t.Fatal(err)
	}
	id := created.Text("sessionId")
	settled, err := fixture.Call(fixture.Insecure, replica.Internal, http.MethodPost, "/internal/v1/sessions/"+id+"/settlement", n.RailToken(),
		`{"paymentRef":"card-1","outcome":"COMPLETED","amountCents":1250}`)
	if err != nil || settled.Status != http.StatusOK {
		t.Fatalf("%d %s, %v", settled.Status, settled.Raw, err)
	}
	return n, id
}

// shell runs lines with this program as the plugin on the PATH, beside kubectl.
type shell struct {
	directory string
	env       []string
}

// newShell has an empty directory, and a kubeconfig with all rights.
func newShell(t *testing.T, env ...string) *shell {
	t.Helper()
	programs := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kubectl-merchant", "kubectl_complete-merchant"} {
		if err := os.Symlink(self, filepath.Join(programs, name)); err != nil {
			t.Fatal(err)
		}
	}
	path := "PATH=" + programs + ":" + os.Getenv("KUBEBUILDER_ASSETS") + ":" + os.Getenv("PATH")
	return &shell{directory: t.TempDir(), env: append([]string{path, "KUBECONFIG=" + admin}, env...)}
}

func (s *shell) command(line string) *exec.Cmd {
	command := exec.Command("bash", "-o", "pipefail", "-c", line)
	command.Dir, command.Env = s.directory, append(os.Environ(), s.env...)
	return command
}

func (s *shell) run(line string) (output string, err error) {
	printed, err := s.command(line).CombinedOutput()
	return string(printed), err
}

func (s *shell) write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.directory, file), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// interruptListening runs an example of listen, and sends it Ctrl-C when it listens.
func (s *shell) interruptListening(t *testing.T, line string) (output string, err error) {
	t.Helper()
	var printed logtest.Buffer
	command := s.command("exec " + line)
	command.Stdout, command.Stderr = &printed, &printed
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	await.Until(t, fixture.Patience, line+" listens", func() bool { return strings.Contains(printed.String(), "The position is in ") })
	err = errors.Join(command.Process.Signal(os.Interrupt), command.Wait())
	return printed.String(), err
}

func TestHelp_ExamplesWork(t *testing.T) {
	t.Parallel()
	n, paid := shops(t)
	var shown struct {
		Reference string `json:"reference"`
	}
	if err := json.Unmarshal([]byte(run(t, n.Namespace, "payments show "+paid+" -o json").want(t, terminal.ExitDone).out), &shown); err != nil {
		t.Fatal(err)
	}
	s := newShell(t, "SESSION_ID="+paid, "REFERENCE="+shown.Reference, "XDG_STATE_HOME="+t.TempDir())
	merchants := "apiVersion: merchant-operator.io/v1alpha1\nkind: Merchant\nmetadata: {name: acme-coffee}\nspec: {displayName: Acme Coffee}\n"
	if err := os.Mkdir(filepath.Join(s.directory, "merchants"), 0o700); err != nil {
		t.Fatal(err)
	}
	s.write(t, "merchants/acme-coffee.yaml", merchants)
	examples := 0
	for _, cmd := range allCommands(root()) {
		if cmd.HasSubCommands() {
			continue
		}
		if cmd.Example == "" && !builtIn(cmd) {
			t.Errorf("%s has no example", cmd.CommandPath())
		}
		for line := range strings.Lines(cmd.Example) {
			examples++
			if line = strings.TrimSpace(line); !strings.Contains(line, cmd.CommandPath()) {
				t.Errorf("the example of %s is %s", cmd.CommandPath(), line)
			}
			var key string
			n.Eventually("the example finds what it needs", func() bool {
				revealed := run(t, n.Namespace, "keys reveal acme-till-1")
				key = strings.TrimSpace(revealed.out)
				return revealed.code == terminal.ExitDone && me(t, key, anywhere) != 401 || strings.HasPrefix(cmd.Name(), "en")
			})
			s.env = append(s.env, "API_KEY="+key) // the last one counts
			s.write(t, "key.txt", key+"\n")
			runExample := s.run
			if cmd.Name() == "listen" {
				runExample = func(line string) (string, error) { return s.interruptListening(t, line) }
			}
			output, err := runExample(line)
			// There is no kubelet, hence no pod.
			noPod := strings.Contains(output, "no pod of the dispatcher runs in namespace merchant-operator-system")
			// Other tests run at the same time, and their merchants may have problems.
			var ended *exec.ExitError
			ofOthers := errors.As(err, &ended) && ended.ExitCode() == terminal.ExitNegative && strings.HasSuffix(line, " -A") && strings.Contains(output, n.Namespace)
			if (err != nil) != (noPod || ofOthers) {
				t.Errorf("%s: %v\n%s", line, err, output)
			}
			if cmd.Name() == "disable" {
				run(t, n.Namespace, "keys enable acme-till-1").want(t, terminal.ExitDone)
			}
		}
	}
	if examples < 20 {
		t.Errorf("found %d examples", examples)
	}
}

// builtIn are cobra's commands.
func builtIn(cmd *cobra.Command) bool {
	return cmd.Name() == "help" || strings.Contains(cmd.CommandPath(), "completion")
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	n := newTenant(t)
	n.Merchant("acme-coffee")
	n.Merchant("acme-tea")
	n.Merchant("other")
	n.ApiKey("till", "other")
	s := newShell(t)
	for line, want := range map[string]string{
		"status acme-":                     "acme-coffee\tAcme acme-coffee\nacme-tea\tAcme acme-tea\n",
		"webhooks status o":                "other\tAcme other\n",
		"allowlist test o":                 "other\tAcme other\n",
		"keys rotate ''":                   "till\tother\n",
		"keys reveal t":                    "till\tother\n",
		"keys issue new --merchant acme-t": "acme-tea\tAcme acme-tea\n",
		"keys r":                           "reveal\tPrint the key of an ApiKey from its Secret\nrotate\tReplace the key of an ApiKey by a new one\n",
		"status -o ''":                     "json\nyaml\nname\n",
		"payments list acme-":              "acme-coffee\tAcme acme-coffee\nacme-tea\tAcme acme-tea\n",
		"payments list other --key t":      "till\tother\n",
		"payments export other --day ''":   "today\nyesterday\n",
		"listen o":                         "other\tAcme other\n",
		"listen --from ''":                 "oldest\nnow\n",
		"onboard x --dry-run ''":           "none\nserver\n",
	} {
		if got, err := s.run("kubectl __complete merchant -n " + n.Namespace + " " + line + " 2>/dev/null"); err != nil || !strings.HasPrefix(got, want+":4\n") {
			t.Errorf("%s: %v\n%s", line, err, got)
		}
	}
}

// badInput has, for each command, wrong arguments and values of its flags, and what the error says.
var badInput = map[string][]struct{ args, want string }{
	"": {
		{"serve", `unknown command "serve"`},
		{"status --port=1", "unknown flag: --port"},
		{"status --namespace=A_b", `--namespace must be the name of a namespace, not "A_b"`},
		{"status --context=nowhere", "context was not found for specified context: nowhere"},
		{"status --cluster=nowhere", `no server found for cluster "nowhere"`},
		{"status --user=nobody", `auth info "nobody" does not exist`},
		{"status --kubeconfig=/nowhere", "/nowhere: no such file"},
		{"status --request-timeout=soon", "Invalid timeout value"},
		{"version --system-namespace=A_b", `--system-namespace must be the name of a namespace, not "A_b"`},
		{"version --credentials-namespace=A_b", `--credentials-namespace must be the name of a namespace, not "A_b"`},
	},
	"status": {{"Acme", `"Acme" is not the name of a Merchant`}, {"a b", "unexpected argument"}, {"--all-namespaces=maybe", "--all-namespaces must be true or false"}, {"--output=wide", `"wide" is not one of json, yaml, name`}},
	"onboard": append([]struct{ args, want string }{
		{"", "NAME is missing"}, {"acme", "--display-name is missing"}, {"Acme --display-name=A", `"Acme" is not the name of a Merchant`},
		{"acme --display-name=A --allow=shop", `"shop" is neither an address nor a CIDR block`}, {"acme --display-name=A --allow=203.0.113.7/24", "has host bits; use 203.0.113.0/24"},
		{"acme --display-name=A --key=Till", `"Till" is not the name of an ApiKey`}, {"acme --display-name=A --secret-name=_", `"_" is not the name of a Secret`},
		{"acme --display-name=A --rotate-every=1m", "--rotate-every must be whole seconds from 5m to 87600h, or 0, not 1m0s"},
		{"acme --display-name=A --rotate-every=90", `--rotate-every must be a time such as 500ms, 30s, 15m or 24h, not "90"`},
		{"acme --display-name=A --expires-at=tomorrow", `"tomorrow" is not a time`}, {"acme --display-name=A --expires-at=2001-01-01T00:00:00Z", "--expires-at is past"},
		{"acme --display-name=A --permissions=pay", `"pay" is not one of create,read,list,cancel,rotate,refund, all`},
	}, badWrites("acme --display-name=A ")...),
	"keys": {{"make", `unknown command "make"`}},
	"keys issue": append([]struct{ args, want string }{
		{"till", "--merchant is missing"}, {"Till --merchant=acme", `"Till" is not the name of an ApiKey`}, {"till --merchant=Acme", `"Acme" is not the name of a Merchant`},
		{"till --merchant=acme --secret-name=_", `"_" is not the name of a Secret`}, {"till --merchant=acme --expires-at=tomorrow", `"tomorrow" is not a time`},
		{"till --merchant=acme --permissions=read,", `"" is not one of create,read,list,cancel,rotate,refund, all`},
		{"till --merchant=acme --rotate-every=99999h", "--rotate-every must be whole seconds"},
		{"till --merchant=acme --expires-at=2001-01-01T00:00:00Z", "--expires-at is past"}, {"till --merchant=acme --mode=test", `"test" is not one of Live, Test`}, {"till --merchant=acme --overlap=1", `--overlap must be a time such as 500ms, 30s, 15m or 24h, not "1"`},
	}, badWrites("till --merchant=acme ")...),
	"keys rotate": append([]struct{ args, want string }{
		{"", "NAME is missing"}, {"Till", "is not the name"}, {"till --overlap=-1s", "--overlap must be whole seconds from 0s to 8760h"}, {"till --overlap=1500ms", "--overlap must be whole seconds"},
		{"till --trigger=" + strings.Repeat("x", 257), "--trigger has 257 characters, at most 256"},
	}, badWrites("till ")...),
	"keys disable":   append([]struct{ args, want string }{{"", "NAME is missing"}, {"till --force=maybe", "--force must be true or false"}}, badWrites("till ")[:4]...),
	"keys enable":    append([]struct{ args, want string }{{"", "NAME is missing"}}, badWrites("till ")[:4]...),
	"keys reveal":    {{"", "NAME is missing"}, {"Till", "is not the name"}},
	"explain-401":    {{"--key-stdin=maybe", "--key-stdin must be true or false"}, {"--key-stdin --from=x", "--from must be an IP address"}, {"--output=name", "is not one of json, yaml"}},
	"allowlist":      {{"show", `unknown command "show"`}},
	"allowlist test": {{"acme", "ADDRESS is missing"}, {"acme x", "ADDRESS must be an IP address"}, {"acme 203.0.113.7 --key=Till", `"Till" is not the name of an ApiKey`}, {"--output=name", "is not one of json, yaml"}},
	"plan": {
		{"", "--filename is missing"}, {"merchants", `unexpected argument "merchants"`}, {"-f merchants -A", "--all-namespaces is for --prune"}, {"--prune=maybe", "--prune must be true or false"},
		{"--all-namespaces=maybe", "--all-namespaces must be true or false"}, {"--output=yaml", `"yaml" is not one of text, json, markdown`}, {"--filename=nowhere", "nowhere: no such file"},
	},
	"webhooks":        {{"list", `unknown command "list"`}},
	"webhooks status": {{"a b", "unexpected argument"}, {"--all-namespaces=maybe", "--all-namespaces must be true or false"}, {"--output=name", "is not one of json, yaml"}},
	"webhooks dead-letters": {
		{"x", "unexpected argument"}, {"--limit=x", `--limit must be a whole number, not "x"`}, {"--merchant=A_b/c", "--merchant must be NAMESPACE/NAME"}, {"--output=wide", "is not one of"},
		{"--redis-url=localhost", "--redis-url or REDIS_URL must be redis://"},
	},
	"webhooks resend": {
		{"--all --redis-url=env", "REDIS_URL is empty"},
		{"", "select dead letters"}, {"ps_1", "is not the id of an event"}, {"--all=maybe", "--all must be true or false"}, {"--resume=maybe", "--resume must be true or false"},
		{"--merchant=A_b/c", "--merchant must be NAMESPACE/NAME"}, {"--all --redis-url=localhost", "--redis-url or REDIS_URL must be redis://"},
	},
	"payments": {{"sum", `unknown command "sum"`}},
	"payments list": append([]struct{ args, want string }{
		{"acme --limit=x", `--limit must be a whole number, not "x"`}, {"acme --limit=-1", "--limit must not be negative"}, {"acme --limit=1 -o csv", "--limit is for the table only"},
		{"acme --order=1 --day=today", "--order finds the sessions of an order"}, {"acme --reference=PHPG-2J6W --day=today", "--reference finds the payment of a receipt"},
		{"acme --reference=1001", `--reference is no reference of a receipt: "1001"`}, {"acme --status=paid", `"PAID" is not one of COMPLETED`}, {"acme --output=yaml", `"yaml" is not one of table, csv, json`},
		{"acme --day=tomorrow", `--day is not today, yesterday or a day such as 2026-11-22: "tomorrow"`},
	}, badSources...),
	"payments export": append([]struct{ args, want string }{
		{"acme --file=day.csv", `--file must end with .xlsx: "day.csv"`}, {"acme --file=day.xlsx -o json", "--file makes a workbook"},
		{"acme --status=paid", `"PAID" is not one of COMPLETED`}, {"acme --output=yaml", `"yaml" is not one of table, csv, json`}, {"acme --day=22.11.2026", "--day is not today"},
	}, badSources...),
	"payments show": {
		{"", "SESSION_ID is missing"}, {"ps_1", `"ps_1" is not the id of a session`}, {"ps_1 --output=csv", `"csv" is not one of table, json`}, {someSession + " --api-url=x", "is not the address of an API"},
		{someSession + " --key-stdin --key=till", "the key itself says whose it is"}, {someSession + " --key-stdin=maybe", "--key-stdin must be true or false"}, {someSession + " --key-env=maybe", "--key-env must be true or false"},
	},
	"payments refund": {
		{"", "SESSION_ID is missing"}, {"ps_1", `"ps_1" is not the id of a session`}, {someSession + " --output=table", `"table" is not one of json`}, {someSession + " --api-url=x", "is not the address of an API"},
		{someSession + " --idempotency-key=ä", "--idempotency-key is not one"}, {someSession + " --key-stdin --key=till", "the key itself says whose it is"},
		{someSession + " --key-stdin=maybe", "--key-stdin must be true or false"}, {someSession + " --key-env=maybe", "--key-env must be true or false"},
	},
	"listen": append([]struct{ args, want string }{
		{"acme --forward-to=http://shop.example/", "--forward-to must be an address of this machine, not shop.example"}, {"acme --from=yesterday", `"yesterday" is not one of oldest, now`}, {"acme --output=yaml", `"yaml" is not one of json`},
	}, badSources...),
	"report":  {{"acme", "unexpected argument"}, {"--all-namespaces=maybe", "--all-namespaces must be true or false"}},
	"version": {{"x", "unexpected argument"}, {"--client=maybe", "--client must be true or false"}, {"--output=name", "is not one of json, yaml"}},
}

const someSession = "ps_abcdefgh2345T2xV9bLrYc8WdNeHq7"

// badSources are for all commands that call the API.
var badSources = []struct{ args, want string }{
	{"", "MERCHANT is missing"}, {"acme", "--api-url is missing"}, {"acme --api-url=x", "is not the address of an API"}, {"acme --api-url=http://pay.example.com", "is plain http"},
	{"acme --key-stdin", "the key itself says whose it is"}, {"--key-stdin --key-env", "--key-stdin and --key-env are both given"}, {"--key-env --api-url=http://127.0.0.1:1", "--key-env is given, and API_KEY is empty"},
	{"--key-stdin --key=till", "the key itself says whose it is"}, {"acme --mode=test", `"test" is not one of Live, Test`}, {"acme --key-stdin=maybe", "--key-stdin must be true or false"}, {"acme --key-env=maybe", "--key-env must be true or false"},
}

// badWrites are for all commands that write.
func badWrites(before string) []struct{ args, want string } {
	return []struct{ args, want string }{
		{before + "--dry-run=client", "use server"}, {before + "--output=wide", `"wide" is not one of json, yaml, name`},
		{before + "--timeout=-1s", "--timeout must not be negative"}, {before + "--timeout=soon", "--timeout must be a time such as"},
		{before + "--reveal -o yaml", "--reveal prints only the key"}, {before + "--reveal=maybe", "--reveal must be true or false"},
	}
}

// anyText are flags for which any text is fine, or whose rules only the API server or the API knows; it refuses them with the field.
var anyText = []string{"help", "as", "as-group", "display-name", "currency", "time-zone", "webhook", "reason", "amount"}

// Bad input is a usage error with a hint.
func TestCommand_BadInput(t *testing.T) {
	for _, name := range []string{"REDIS_URL", "API_URL", "API_KEY"} {
		t.Setenv(name, "")
	}
	for _, cmd := range allCommands(root()) {
		path := strings.TrimSpace(strings.TrimPrefix(cmd.CommandPath(), "kubectl merchant"))
		if builtIn(cmd) {
			continue
		}
		tried := slices.Clone(anyText)
		for _, bad := range badInput[path] {
			var problems strings.Builder
			args := append([]string{"--kubeconfig=" + admin}, strings.Fields(path+" "+bad.args)...)
			code := Execute(t.Context(), "v1.2.3", genericiooptions.IOStreams{In: strings.NewReader("key"), Out: &strings.Builder{}, ErrOut: &problems}, args)
			lines := strings.Split(strings.TrimSpace(problems.String()), "\n")
			if code != terminal.ExitUsage || !strings.Contains(lines[0], bad.want) || len(lines) != 2 {
				t.Errorf("kubectl merchant %s %s: exit code %d, want a usage error with %q and a hint\n%s", path, bad.args, code, bad.want, problems.String())
			}
			for _, word := range args {
				if name, _, ok := strings.Cut(strings.TrimPrefix(word, "--"), "="); ok {
					tried = append(tried, name)
				}
				if word == "-o" {
					tried = append(tried, "output")
				}
			}
		}
		check := func(flag *pflag.Flag) {
			if !slices.Contains(tried, flag.Name) {
				t.Errorf("no bad value of %s --%s is tried", cmd.CommandPath(), flag.Name)
			}
		}
		if cmd.HasParent() {
			cmd.LocalNonPersistentFlags().VisitAll(check)
		} else {
			cmd.PersistentFlags().VisitAll(check)
		}
	}
}

// kubectl finds a plugin, and what completes its words, by these names.
func TestArgs(t *testing.T) {
	for name, want := range map[string]string{
		"/usr/bin/kubectl-merchant":     "[status acme]",
		"kubectl-merchant.exe":          "[status acme]",
		"bin/kubectl_complete-merchant": "[__complete status acme]",
	} {
		if args, ok := Args([]string{name, "status", "acme"}); !ok || fmt.Sprint(args) != want {
			t.Errorf("%s: %v, %v", name, args, ok)
		}
	}
	if _, ok := Args([]string{"/merchant-operator", "operator"}); ok {
		t.Error("the operator is taken for the plugin")
	}
}

// The page has a row for each command.
func TestCommands_AreDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/kubectl-merchant.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range root().Commands() {
		row := regexp.MustCompile(`(?m)^\| ` + "`" + command.Name() + `[ ` + "`" + `]`)
		if command.IsAvailableCommand() && !slices.Contains([]string{"help", "completion"}, command.Name()) && !row.Match(page) {
			t.Errorf("docs/kubectl-merchant.md has no row for %s", command.Name())
		}
	}
}
