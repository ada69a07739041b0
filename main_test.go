package main

import (
	"context"
	"io"
	"log"
	"log/slog"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// execute runs a command line that ends before it serves anything.
func execute(args ...string) error {
	root := newCommand()
	root.SetArgs(args)
	root.SetOut(io.Discard)
	root.SetErr(io.Discard)
	return root.Execute()
}

func allCommands(cmd *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{cmd}
	for _, sub := range cmd.Commands() {
		all = append(all, allCommands(sub)...)
	}
	return all
}

// The examples get as far as a Redis that is not there, and name events as Redis does.
func TestHelp_Examples(t *testing.T) {
	t.Setenv("REDIS_URL", "redis://127.0.0.1:1")
	examples := 0
	for _, cmd := range allCommands(newCommand()) {
		for line := range strings.Lines(cmd.Example) {
			examples++
			args := strings.Fields(line)
			if err := execute(args[1:]...); err == nil || !strings.Contains(err.Error(), "redis is unavailable") {
				t.Errorf("%s: %v", strings.TrimSpace(line), err)
			}
			for _, arg := range args {
				if strings.HasPrefix(arg, "evt_") && !regexp.MustCompile(`^evt_[a-z2-7]{12}[0-9A-Za-z]{18}_ended$`).MatchString(arg) {
					t.Errorf("%s is not the id of an event", arg)
				}
			}
		}
	}
	if examples < 3 {
		t.Errorf("found %d examples", examples)
	}
}

// badInput has, for each command, invalid values of its flags and what the error says. The command ends before it connects to
// anything.
var badInput = map[string][]struct{ args, want string }{
	"": {
		{"--log-level=loud", `--log-level must be DEBUG, INFO, WARN or ERROR, not "loud"; see: merchant-operator --help`},
		{"serve", `unknown command "serve"; use merchant-operator apiserver|console|dead-letters|dispatcher|end-logins|operator|version`},
		{"--port=1", "unknown flag: --port; see: merchant-operator --help"},
	},
	"operator": {
		{"now", `unknown command "now"`},
		{"--kubeconfig=/nowhere", "load the kubeconfig (--kubeconfig or KUBECONFIG): stat /nowhere"},
		{"--credentials-namespace=", "--credentials-namespace must be the name of a namespace"},
		{"--credentials-namespace=A_b", `--credentials-namespace must be the name of a namespace (lower-case letters, digits and -), not "A_b"`},
		{"--watch-namespaces=shops,A_b", "--watch-namespaces must be the name of a namespace"},
		{"--ops-address=9090", `--ops-address must be a listen address such as :8080 or 127.0.0.1:8080, not "9090"`},
		{"--secure-metrics=maybe", `--secure-metrics must be true or false, not "maybe"; see: merchant-operator operator --help`},
		{"--ops-cert-dir=/nowhere", "--ops-cert-dir needs --secure-metrics"},
		{"--pprof", "--pprof needs --secure-metrics, or a loopback address in --ops-address"},
		{"--leader-elect=maybe", "--leader-elect must be true or false"},
		{"--leader-identity=$(POD_UID)", "--leader-identity must not have a variable that is not set"},
		{"--max-requests-per-second=-1", "--max-requests-per-second and --max-burst must not be negative"},
		{"--max-burst=-1", "--max-requests-per-second and --max-burst must not be negative"},
	},
	"apiserver": {
		{"--max-sessions-per-day=-1", "--max-sessions-per-day must be from 0 to 1000000000"},
		{"--max-sessions-per-day=1000000001", "--max-sessions-per-day must be from 0 to 1000000000"},
		{"--redis-url=", "set --redis-url or REDIS_URL"},
		{"--redis-url=localhost:6379", "--redis-url or REDIS_URL must be redis://"},
		{"--redis-url=redis://127.0.0.1:1/0?pool_size=5", "no other parameters"},
		{"--kubeconfig=/nowhere", "load the kubeconfig (--kubeconfig or KUBECONFIG): stat /nowhere"},
		{"--credentials-namespace=A_b", "--credentials-namespace must be the name of a namespace"},
		{"--public-address=localhost", "--public-address must be a listen address"},
		{"--internal-address=:99999", "--internal-address must be a listen address"},
		{"--ops-address=", "--ops-address must be a listen address"},
		{"--secure-metrics=maybe", "--secure-metrics must be true or false"},
		{"--ops-cert-dir=/nowhere", "--ops-cert-dir needs --secure-metrics"},
		{"--pprof", "--pprof needs --secure-metrics"},
		{"--max-connections=many", `--max-connections must be a whole number, not "many"`},
		{"--max-connections=0", "--max-connections must be at least 1"},
		{"--max-streams=0", "--max-streams and --max-streams-per-address must be at least 1"},
		{"--max-streams-per-address=0", "--max-streams and --max-streams-per-address must be at least 1"},
		{"--public-url=http://pay.example", "--public-url must be an https URL without a path"},
		{"--payment-app-url=http://pay.example/{sessionId}", "--payment-app-url must be an https URL, or an http URL of this machine"},
		{"--payment-app-url=https://pay.example", "--payment-app-url must have {sessionId} once"},
		{"--qr-content=Text", "--qr-content must be Payload or Link"},
		{"--qr-scheme=1-pay", `--qr-scheme: "1-pay" is not a URI scheme; use for example pay`},
		{"--trusted-proxies=10.0.0.1", `--trusted-proxies: "10.0.0.1" is not a CIDR block; use a form like 10.0.0.0/8`},
		{"--session-retention=72", `--session-retention must be a time such as 500ms, 30s, 15m or 24h, not "72"`},
		{"--session-retention=1h", "--session-retention: must be at least 24h"},
		{"--history=1h", "--history must be from 24h to 2160h"},
		{"--history-entries=10", "--history-entries must be from 1000 to 100000000"},
		{"--receipts=maybe", "--receipts must be true or false"},
		{"--public-rate=0", "--public-rate and --public-burst must be at least 1"},
		{"--public-burst=99999999999", "--public-burst must be a whole number up to 2147483647"},
		{"--settlement-replicas=-1", "--settlement-replicas must not be negative"},
		{"--settlement-replicas=all", `--settlement-replicas must be a whole number, not "all"`},
		{"--settlement-wait=0s", "--settlement-wait must be at least 1ms"},
		{"--access-log=maybe", "--access-log must be true or false"},
		{"--log-refused-keys=maybe", "--log-refused-keys must be true or false"},
		{"--drain-delay=-1s", "--drain-delay must not be negative"},
	},
	"dispatcher": {
		{"--redis-url=", "set --redis-url or REDIS_URL"},
		{"--kubeconfig=/nowhere", "load the kubeconfig (--kubeconfig or KUBECONFIG): stat /nowhere"},
		{"--credentials-namespace=A_b", "--credentials-namespace must be the name of a namespace"},
		{"--ops-address=x", "--ops-address must be a listen address"},
		{"--secure-metrics=maybe", "--secure-metrics must be true or false"},
		{"--ops-cert-dir=/nowhere", "--ops-cert-dir needs --secure-metrics"},
		{"--pprof", "--pprof needs --secure-metrics"},
		{"--webhook-allow-http=maybe", "--webhook-allow-http must be true or false"},
		{"--webhook-allow-cidrs=::ffff:10.0.0.0/104", "--webhook-allow-cidrs: "},
		{"--webhook-deny-cidrs=34.118.224.0", "is not a CIDR block"},
		{"--webhook-deny-domains=https://svc", "--webhook-deny-domains: "},
		{"--webhook-concurrency=0", "--webhook-concurrency must be at least 1"},
		{"--webhook-max-in-flight=0", "--webhook-max-in-flight must be at least 1"},
		{"--webhook-max-pending=0", "--webhook-max-pending must be at least 1"},
		{"--lease=1s", "--lease must be at least 18s: an attempt takes up to 15s"},
		{"--webhook-failing-limit=0s", "--webhook-failing-limit must be positive"},
		{"--history=0s", "--history must be from 24h to 2160h"},
		{"--history-entries=0", "--history-entries must be from 1000 to 100000000"},
		{"--smtp-url=mail.example:587", "--smtp-url must be smtps://host:port, or smtp://host:port for STARTTLS"},
		{"--smtp-url=smtp://ada:secret@mail.example", "--smtp-url must not have a user; set SMTP_USERNAME and SMTP_PASSWORD"},
		{"--smtp-url=smtp://mail.example --smtp-from=Shop", "--smtp-from must be an address"},
		{"--smtp-from=x", "--smtp-from needs --smtp-url"},
		{"--smtp-url=smtp://mail.example --smtp-from=a@ü_.example", "--smtp-from must have a domain that DNS allows"},
		{"--smtp-helo=pay.example", "--smtp-helo needs --smtp-url"},
		{"--smtp-url=smtp://mail.example --smtp-from=a@b.example --smtp-helo=pay..example", "--smtp-helo must be a host name"},
		{"--smtp-ca-file=/nowhere", "--smtp-ca-file needs --smtp-url"},
		{"--smtp-url=smtp://mail.example --smtp-from=a@b.example --smtp-ca-file=/nowhere", "--smtp-ca-file: open /nowhere"},
	},
	"console": {
		{"--redis-url=", "set --redis-url or REDIS_URL"},
		{"--kubeconfig=/nowhere", "load the kubeconfig (--kubeconfig or KUBECONFIG): stat /nowhere"},
		{"--watch-namespaces=shops,A_b", "--watch-namespaces must be the name of a namespace"},
		{"--history=1h", "--history must be from 24h to 2160h"},
		{"--history-entries=10", "--history-entries must be from 1000 to 100000000"},
		{"--console-address=x", "--console-address must be a listen address"},
		{"--ops-address=x", "--ops-address must be a listen address"},
		{"--secure-metrics=maybe", "--secure-metrics must be true or false"},
		{"--ops-cert-dir=/nowhere", "--ops-cert-dir needs --secure-metrics"},
		{"--pprof", "--pprof needs --secure-metrics"},
		{"--session-retention=1h", "--session-retention: must be at least 24h"},
		{"--settlement-replicas=-1", "--settlement-replicas must not be negative"},
		{"--external-url=console.example", "is not an origin; use a form like https://console.example"},
		{"--api-url=http://api.example", "is not an origin"},
		{"--internal-url=http://api.example:8081", `--internal-url "http://api.example:8081" is not an origin`},
		{"--trusted-proxies=x", `--trusted-proxies: "x" is not a CIDR block`},
		{"--address-rate=0", "--address-rate and --address-burst must be at least 1"},
		{"--address-burst=0", "--address-rate and --address-burst must be at least 1"},
		{"--oidc-issuer-url=id.example", `--oidc-issuer-url "id.example" is not an https URL`},
		{"--oidc-client-id=", "set --oidc-client-id"},
		{"--oidc-username-claim=", "set --oidc-username-claim"},
		{"--login-idle=1s", "--login-idle must be at least 1m"},
		{"--login-lifetime=1m", "--login-lifetime at least as long"},
		{"--drain-delay=-1s", "--drain-delay must not be negative"},
	},
	"dead-letters": {{"show", `unknown command "show"; use merchant-operator dead-letters list|resend`}},
	"dead-letters list": {
		{"--redis-url=", "set --redis-url or REDIS_URL"},
		{"--merchant=acme", `--merchant must be NAMESPACE/NAME, or an id such as mer_abcdefgh2345, not "acme"`},
		{"--limit=x", `--limit must be a whole number, not "x"; see: merchant-operator dead-letters list --help`},
		{"--limit=-1", "--limit must be at least 1, or 0 for all, not -1"},
		{"--output=yaml", `--output must be table or json, not "yaml"`},
	},
	"end-logins": {
		{"--redis-url=", "set --redis-url or REDIS_URL"},
		{"--redis-url=redis://127.0.0.1:1", "ACCOUNT must be the issuer URL, \"#\" and the provider's id of the person"},
	},
	"dead-letters resend": {
		{"--redis-url=", "set --redis-url or REDIS_URL"},
		{"", "select dead letters by event ids, by --merchant, or with --all"},
		{"ps_1", `"ps_1" is not the id of an event; ids begin with evt_`},
		{"--merchant=mer_acme", "--merchant must be NAMESPACE/NAME"},
		{"--all=maybe", "--all must be true or false"},
		{"--resume=maybe", "--resume must be true or false"},
	},
	"version": {{"--short", "unknown flag: --short"}},
}

// required are the flags without which a command does not start.
var required = map[string]string{
	"console": "--external-url=https://console.example --internal-url=https://api.example:8081 --oidc-issuer-url=https://id.example --oidc-client-id=console",
}

// notTried are flags that accept any text, or whose files are read later.
var notTried = []string{
	"console-cert-dir", "internal-audience", "internal-ca-file", "internal-cert-dir", "internal-token-file", "oidc-ca-file", "oidc-scopes", "oidc-username-prefix", "oidc-groups-claim", "oidc-groups-prefix",
}

func TestFlags_BadValue(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nowhere")
	for _, cmd := range allCommands(newCommand()) {
		path := strings.TrimPrefix(strings.TrimPrefix(cmd.CommandPath(), "merchant-operator"), " ")
		tried := slices.Clone(notTried)
		for _, test := range badInput[path] {
			if flag, isFlag := strings.CutPrefix(test.args, "--"); isFlag {
				name, _, _ := strings.Cut(flag, "=")
				tried = append(tried, name)
			}
			t.Setenv("REDIS_URL", "redis://127.0.0.1:1")
			if test.args == "--redis-url=" {
				t.Setenv("REDIS_URL", "")
			}
			if err := execute(strings.Fields(path + " " + required[path] + " " + test.args)...); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s %s: %v\nwant: %s", cmd.CommandPath(), test.args, err, test.want)
			}
		}
		cmd.LocalNonPersistentFlags().VisitAll(func(flag *pflag.Flag) {
			if flag.Name != "help" && !slices.Contains(tried, flag.Name) {
				t.Errorf("no bad value of %s --%s is tried", cmd.CommandPath(), flag.Name)
			}
		})
	}
}

// Go's HTTP client quotes what a merchant's endpoint sends at the wrong time, in lines of any number, to the standard logger.
func TestRoles_SilenceStandardLogger(t *testing.T) {
	var written strings.Builder
	log.SetOutput(&written)
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	cmd := roleCommand("dispatcher", "", func() *slog.Logger { return slog.New(slog.DiscardHandler) }, func(context.Context, *slog.Logger) error {
		log.Print("Unsolicited response received on idle HTTP channel starting with a text of the endpoint")
		return nil
	})
	cmd.SetArgs(nil)
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	if written.Len() > 0 {
		t.Errorf("the role wrote outside its log: %s", &written)
	}
}

// The image has no files of time zones.
func TestTimeZones_InTheProgram(t *testing.T) {
	packages, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(strings.Fields(string(packages)), "time/tzdata") {
		t.Error("the program is built without time/tzdata")
	}
}
