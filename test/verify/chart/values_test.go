package chart

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
)

func TestWrongValuesAreRefused(t *testing.T) {
	tests := map[string]struct {
		values string
		says   []string // beside each other in the message
	}{
		"a misspelt value":                 {"apiserver: {replica: 3}", []string{"apiserver", "'replica' not allowed"}},
		"a misspelt section":               {"api: {replicas: 3}", []string{"'api' not allowed"}},
		"a text for a number":              {"apiserver: {replicas: '3'}", []string{"/apiserver/replicas", "want integer"}},
		"a number for a text":              {"image: {tag: 1.2}", []string{"/image/tag", "want string"}},
		"a text for a list":                {"watchNamespaces: shops", []string{"/watchNamespaces", "want array"}},
		"a number below the least":         {"apiserver: {publicRateLimit: {burst: 0}}", []string{"/apiserver/publicRateLimit/burst", "minimum"}},
		"none of the choices":              {"redis: {type: Sentinels}", []string{"/redis/type", "'Bundled', 'Server', 'Sentinel'"}},
		"a tag for a digest":               {"image: {digest: v1}", []string{"/image/digest", "sha256"}},
		"an address without a port":        {"redis: {type: Server, addresses: [redis.example]}", []string{"/redis/addresses/0", "does not match"}},
		"a password among the addresses":   {"redis: {type: Server, addresses: ['u:p@redis.example:6379']}", []string{"/redis/addresses/0", "does not match"}},
		"a duration without a unit":        {"apiserver: {sessionRetention: '72'}", []string{"/apiserver/sessionRetention"}},
		"a server without its address":     {"redis: {type: Server}", []string{"redis.addresses: set at least one host:port"}},
		"several servers":                  {"redis: {type: Server, addresses: ['a:1', 'b:1']}", []string{"redis.addresses", "takes one address"}},
		"Sentinels without a master":       {"redis: {type: Sentinel, addresses: ['a:1']}", []string{"redis.sentinel.masterName"}},
		"a database of a Cluster":          {"redis: {type: Cluster, addresses: ['a:1'], database: 1}", []string{"redis.database"}},
		"a URL in no Secret":               {"redis: {type: URL}", []string{"redis.url.secretName"}},
		"TLS of the bundled Redis":         {"redis: {tls: {enabled: true}}", []string{"redis.tls", "bundled"}},
		"credentials beside the programs":  {"credentialsNamespace: {name: " + system + "}", []string{"credentialsNamespace.name"}},
		"merchants beside the credentials": {"watchNamespaces: [" + credentials + "]", []string{"watchNamespaces"}},
		"links to nowhere":                 {"apiserver: {qrContent: Link}", []string{"apiserver.publicURL"}},
		"links over plain HTTP":            {"apiserver: {publicURL: 'http://pay.example.com'}", []string{"/apiserver/publicURL"}},
		"a route through no Gateway":       {"apiserver: {trustedProxies: [10.0.0.0/8]}\nhttpRoute: {enabled: true}", []string{"httpRoute.parentRefs"}},
		"a certificate for no host":        {"apiserver: {trustedProxies: [10.0.0.0/8]}\ningress: {enabled: true, tlsSecretName: tls}", []string{"ingress.hosts"}},
		"fewer pods at most than at least": {"apiserver: {autoscaling: {enabled: true, minReplicas: 3, maxReplicas: 2}}", []string{"minReplicas must not be above"}},
		"an ingress of unknown address":    {"ingress: {enabled: true}", []string{"ingress.enabled", "apiserver.trustedProxies", "apiserver.clientsConnectDirectly"}},
		"a Gateway of unknown address": {"httpRoute: {enabled: true, parentRefs: [{name: public}]}",
			[]string{"httpRoute.enabled", "apiserver.trustedProxies", "apiserver.clientsConnectDirectly"}},
		"a client secret as text":      {"console: {oidc: {clientSecret: hush}}", []string{"/console/oidc", "'clientSecret' not allowed"}},
		"a mail server with a user":    {"receipts: {smtpURL: 'smtps://u:p@mail.example.com', from: a@b.example}", []string{"/receipts/smtpURL", "does not match"}},
		"receipts from nobody":         {"receipts: {smtpURL: 'smtps://mail.example.com'}", []string{"receipts.from"}},
		"receipts by no server":        {"receipts: {from: a@b.example}", []string{"receipts.smtpURL"}},
		"no dispatcher":                {"dispatcher: {replicas: 0}", []string{"dispatcher.replicas", "dispatcher.paused"}},
		"a rail without its namespace": {"rails: [{serviceAccountName: card}]", []string{"rails: set namespace"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { assertRefused(t, test.says, test.values) })
	}
}

// A console that could not start, or could not be reached safely, says which value is missing.
func TestAConsoleThatCannotWorkIsRefused(t *testing.T) {
	for values, says := range map[string][]string{
		"console: {externalURL: ''}":                                              {"console.externalURL", "console.enabled"},
		"console: {externalURL: 'http://console.example'}":                        {"/console/externalURL"},
		"console: {externalURL: 'https://console.example/shops'}":                 {"/console/externalURL"},
		"console: {oidc: {issuerURL: ''}}":                                        {"console.oidc.issuerURL", "OpenID provider"},
		"console: {oidc: {issuerURL: 'http://id.example'}}":                       {"/console/oidc/issuerURL"},
		"console: {oidc: {clientID: ''}}":                                         {"console.oidc.clientID"},
		"console: {oidc: {usernameClaim: ''}}":                                    {"/console/oidc/usernameClaim"},
		"console: {loginIdle: soon}":                                              {"/console/loginIdle"},
		"apiserver: {internalCertificateSecretName: ''}":                          {"apiserver.internalCertificateSecretName", "console.enabled", "TLS"},
		"console: {autoscaling: {enabled: true, minReplicas: 3, maxReplicas: 2}}": {"console.autoscaling", "minReplicas must not be above"},
		"console: {trustedProxies: [10.0.0.0/8], httpRoute: {enabled: true}}":     {"console.httpRoute.parentRefs"},
		"console: {ingress: {enabled: true}}":                                     {"console.ingress.enabled", "console.trustedProxies"},
		"console: {httpRoute: {enabled: true, parentRefs: [{name: public}]}}":     {"console.httpRoute.enabled", "console.trustedProxies"},
	} {
		assertRefused(t, says, withConsole, values)
	}
	for _, proxies := range []string{"apiserver: {trustedProxies: [10.0.0.0/8]}", "console: {trustedProxies: [10.0.0.0/8]}", "apiserver: {clientsConnectDirectly: true}"} {
		render(t, withConsole, proxies, "console: {ingress: {enabled: true}}")
	}
}

// assertRefused fails t unless the values are refused with a message that has all of the words.
func assertRefused(t *testing.T, says []string, values ...string) {
	t.Helper()
	_, err := tryRender(t, values...)
	if err == nil {
		t.Fatalf("these values are taken: %s", values)
	}
	for _, words := range says {
		if !strings.Contains(err.Error(), words) {
			t.Errorf("the message does not say %q:\n%v", words, err)
		}
	}
}

// Clients of a route that carries connections as they are keep their addresses.
func TestARouteWithoutAProxyIsTakenWhenItIsSaid(t *testing.T) {
	for _, values := range []string{"ingress: {enabled: true}", "httpRoute: {enabled: true, parentRefs: [{name: public}]}"} {
		for _, api := range []string{"apiserver: {clientsConnectDirectly: true}", "apiserver: {trustedProxies: [10.0.0.0/8]}"} {
			render(t, api, values)
		}
	}
}

func TestAPausedDispatcherHasNoPods(t *testing.T) {
	for _, values := range []string{"dispatcher: {paused: true}", "dispatcher: {paused: true, replicas: 0}"} {
		out := render(t, values)
		deployment := get[appsv1.Deployment](t, objects(t, out.stream()), "Deployment/merchant-operator-dispatcher")
		if *deployment.Spec.Replicas != 0 {
			t.Errorf("with %q there are %d pods", values, *deployment.Spec.Replicas)
		}
		if notes := out["merchant-operator/templates/NOTES.txt"]; !strings.Contains(notes, "The dispatcher is paused") {
			t.Errorf("with %q the notes do not say so:\n%s", values, notes)
		}
	}
}

// The notes say what is left to do for a console, and nothing without one.
func TestTheNotesOfAConsole(t *testing.T) {
	const notes, callback = "merchant-operator/templates/NOTES.txt", "Register https://console.example/callback"
	if text := render(t, withConsole, "console: {externalURL: 'https://console.example/'}")[notes]; !strings.Contains(text, callback) {
		t.Errorf("the notes do not say %q:\n%s", callback, text)
	}
	if text := render(t)[notes]; strings.Contains(text, "callback") {
		t.Errorf("without a console the notes say:\n%s", text)
	}
}

// A chart that has this one as a part passes its own values under global.
func TestGlobalValuesAreTaken(t *testing.T) {
	render(t, "global: {anything: true}")
}
