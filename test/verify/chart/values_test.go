package chart

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/merchant-operator/merchant-operator/test/repository"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

func TestValues_Invalid(t *testing.T) {
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
		"two roles with one account":       {"operator: {serviceAccount: {name: a}}\ndispatcher: {serviceAccount: {name: a}}", []string{"dispatcher.serviceAccount.name: operator has the same account"}},
		"an account of no name":            {"console: {serviceAccount: {create: false}}", []string{"console.serviceAccount.name"}},
		"a label of the chart":             {"commonLabels: {app.kubernetes.io/instance: mine}", []string{"commonLabels: app.kubernetes.io/instance is a label of the chart"}},
		"a route through no Gateway":       {"apiserver: {trustedProxies: [10.0.0.0/8]}\nhttpRoute: {enabled: true}", []string{"httpRoute.parentRefs"}},
		"a certificate for no host":        {"apiserver: {trustedProxies: [10.0.0.0/8]}\ningress: {enabled: true, tlsSecretName: tls}", []string{"ingress.hosts"}},
		"fewer pods at most than at least": {"apiserver: {autoscaling: {enabled: true, minReplicas: 3, maxReplicas: 2}}", []string{"minReplicas must not be above"}},
		"an ingress of unknown address":    {"ingress: {enabled: true}", []string{"ingress.enabled", "apiserver.trustedProxies", "apiserver.clientsConnectDirectly"}},
		"a balancer of unknown addresses": {"apiserver: {service: {type: LoadBalancer, externalTrafficPolicy: Cluster}}",
			[]string{"apiserver.service.externalTrafficPolicy", "apiserver.clientsConnectDirectly"}},
		"a Gateway of unknown address": {"httpRoute: {enabled: true, parentRefs: [{name: public}]}",
			[]string{"httpRoute.enabled", "apiserver.trustedProxies", "apiserver.clientsConnectDirectly"}},
		"a client secret as text":      {"console: {oidc: {clientSecret: hush}}", []string{"/console/oidc", "'clientSecret' not allowed"}},
		"a mail server with a user":    {"receipts: {smtpURL: 'smtps://u:p@mail.example.com', from: a@b.example}", []string{"/receipts/smtpURL", "does not match"}},
		"a greeting of two words":      {"receipts: {smtpURL: 'smtps://mail.example.com', from: a@b.example, helo: 'a b'}", []string{"/receipts/helo", "does not match"}},
		"receipts from nobody":         {"receipts: {smtpURL: 'smtps://mail.example.com'}", []string{"receipts.from"}},
		"receipts by no server":        {"receipts: {from: a@b.example}", []string{"receipts.smtpURL"}},
		"one leader's name for all":    {"operator: {extraArgs: [--leader-identity=x]}", []string{"operator.extraArgs", "--leader-identity"}},
		"no dispatcher":                {"dispatcher: {replicas: 0}", []string{"dispatcher.replicas", "dispatcher.paused"}},
		"a rail without its namespace": {"rails: [{serviceAccountName: card}]", []string{"rails: set namespace"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { assertRefused(t, test.says, test.values) })
	}
}

// A console that could not start, or could not be reached safely, says which value is missing.
func TestValues_ConsoleIncomplete(t *testing.T) {
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
func TestValues_RouteWithoutProxy(t *testing.T) {
	for _, values := range []string{"ingress: {enabled: true}", "httpRoute: {enabled: true, parentRefs: [{name: public}]}"} {
		for _, api := range []string{"apiserver: {clientsConnectDirectly: true}", "apiserver: {trustedProxies: [10.0.0.0/8]}"} {
			render(t, api, values)
		}
	}
}

func TestValues_DispatcherPaused(t *testing.T) {
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
func TestNotes_Console(t *testing.T) {
	const notes, callback = "merchant-operator/templates/NOTES.txt", "Register https://console.example/callback"
	if text := render(t, withConsole, "console: {externalURL: 'https://console.example/'}")[notes]; !strings.Contains(text, callback) {
		t.Errorf("the notes do not say %q:\n%s", callback, text)
	}
	if text := render(t)[notes]; strings.Contains(text, "callback") {
		t.Errorf("without a console the notes say:\n%s", text)
	}
}

// A chart that has this one as a part passes its own values under global. A registry and its Secrets are for the images of this chart, too.
func TestValues_Global(t *testing.T) {
	render(t, "global: {anything: true}")
	const values = "global: {imageRegistry: 'mirror.example:5000/', imagePullSecrets: [mirror, {name: own}]}\nimagePullSecrets: [{name: own}]"
	secrets := []corev1.LocalObjectReference{{Name: "own"}, {Name: "mirror"}}
	for name, template := range templates(t, values, "image: {tag: '1'}", withConsole) {
		want := "mirror.example:5000/merchant-operator/merchant-operator:1"
		if name == "merchant-operator-redis" {
			want = "mirror.example:5000/library/redis:7.2-alpine"
		}
		if got := template.Spec.Containers[0].Image; got != want {
			t.Errorf("%s runs %s, not %s", name, got, want)
		}
		if diff := cmp.Diff(secrets, template.Spec.ImagePullSecrets); diff != "" {
			t.Errorf("Secrets of %s (-want +got):\n%s", name, diff)
		}
	}
	for repository, want := range map[string]string{"team/app": "mirror.example/team/app:1", "localhost/app": "mirror.example/app:1", "app": "mirror.example/app:1"} {
		got := templates(t, "global: {imageRegistry: mirror.example}\nimage: {tag: '1', repository: "+repository+"}")
		if image := got["merchant-operator"].Spec.Containers[0].Image; image != want {
			t.Errorf("%s is pulled as %s, not %s", repository, image, want)
		}
	}
}

// always are the objects of every rendering with the least that can be asked for.
var always = []string{
	"ClusterRole/merchant-operator", "ClusterRole/merchant-operator-dispatcher", "ClusterRole/merchant-operator-rail",
	"ClusterRole/merchant-operator-merchant-bookkeeper", "ClusterRole/merchant-operator-merchant-integrator", "ClusterRole/merchant-operator-merchant-viewer",
	"ClusterRoleBinding/merchant-operator", "ClusterRoleBinding/merchant-operator-apiserver", "ClusterRoleBinding/merchant-operator-dispatcher",
	"Deployment/merchant-operator", "Deployment/merchant-operator-apiserver", "Deployment/merchant-operator-dispatcher",
	"Role/merchant-operator@" + credentials,
	"Role/merchant-operator-apiserver@" + credentials, "Role/merchant-operator-dispatcher@" + credentials,
	"RoleBinding/merchant-operator@" + credentials,
	"RoleBinding/merchant-operator-apiserver@" + credentials, "RoleBinding/merchant-operator-dispatcher@" + credentials,
	"Service/merchant-operator-apiserver", "Service/merchant-operator-apiserver-internal", "Service/merchant-operator-ops",
	"ServiceAccount/merchant-operator", "ServiceAccount/merchant-operator-apiserver", "ServiceAccount/merchant-operator-dispatcher",
	"ValidatingAdmissionPolicy/merchant-operator-operator-secrets", "ValidatingAdmissionPolicyBinding/merchant-operator-operator-secrets",
}

// Objects that a toggle adds.
var (
	budgets = []string{
		"PodDisruptionBudget/merchant-operator", "PodDisruptionBudget/merchant-operator-apiserver", "PodDisruptionBudget/merchant-operator-dispatcher",
	}
	policies  = []string{"NetworkPolicy/merchant-operator", "NetworkPolicy/merchant-operator-apiserver", "NetworkPolicy/merchant-operator-dispatcher"}
	ofConsole = []string{
		"Deployment/merchant-operator-console", "Service/merchant-operator-console", "ServiceAccount/merchant-operator-console",
		"ClusterRole/merchant-operator-console", "ClusterRoleBinding/merchant-operator-console",
		"ClusterRole/merchant-operator-console-cluster", "ClusterRoleBinding/merchant-operator-console-cluster",
	}
)

// least turns off what has a switch, and stands before the values of each case.
const least = `
crds: {enabled: false}
credentialsNamespace: {create: false}
flowSchema: {enabled: false}
podDisruptionBudget: {enabled: false}
networkPolicy: {enabled: false}
redis: {type: URL, url: {secretName: redis}}
`

// Each case is what a value adds to the least, and the API server is asked whether it takes it.
func TestValues_Toggles(t *testing.T) {
	tests := []struct {
		name    string
		values  string
		added   []string
		removed []string
	}{
		{"the least", "", nil, nil},
		{"the CRDs", "crds: {enabled: true}", []string{
			"CustomResourceDefinition/apikeys.merchant-operator.io", "CustomResourceDefinition/merchants.merchant-operator.io",
		}, nil},
		{"the credentials namespace", "credentialsNamespace: {create: true}", []string{"Namespace/" + credentials}, nil},
		{"the deletion policy", "merchantDeletionPolicy: {enabled: true}", []string{
			"ValidatingAdmissionPolicy/merchant-operator-merchant-deletion", "ValidatingAdmissionPolicyBinding/merchant-operator-merchant-deletion",
		}, nil},
		{"the flow schema of the roles", "flowSchema: {enabled: true}", []string{"FlowSchema/merchant-operator"}, nil},
		{"the flow schema of tenants", "flowSchema: {enabled: true, tenants: {enabled: true, nominalConcurrencyShares: 10}}", []string{
			"FlowSchema/merchant-operator", "FlowSchema/merchant-operator-tenants", "PriorityLevelConfiguration/merchant-operator-tenants",
		}, nil},
		{"the flow schema of tenants alone, which would hold up the roles", "flowSchema: {tenants: {enabled: true}}", nil, nil},
		{"disruption budgets", "podDisruptionBudget: {enabled: true, maxUnavailable: 25%}", budgets, nil},
		{"network policies", "networkPolicy: {enabled: true}", policies, nil},
		{"the bundled Redis", "redis: {type: Bundled}", []string{"Service/merchant-operator-redis", "StatefulSet/merchant-operator-redis"}, nil},
		{"the bundled Redis without a volume", "redis: {type: Bundled, bundled: {persistence: {enabled: false}}}",
			[]string{"Service/merchant-operator-redis", "StatefulSet/merchant-operator-redis"}, nil},
		{"the bundled Redis behind a policy", "redis: {type: Bundled, bundled: {persistence: {storageClassName: fast}}}\nnetworkPolicy: {enabled: true}", slices.Concat(policies, []string{
			"NetworkPolicy/merchant-operator-redis", "Service/merchant-operator-redis", "StatefulSet/merchant-operator-redis",
		}), nil},
		{"Sentinels", "redis: {type: Sentinel, addresses: ['a:26379', 'b:26379'], sentinel: {masterName: pay}, auth: {secretName: redis}, tls: {enabled: true, caSecretName: ca}}", nil, nil},
		{"an ingress", "apiserver: {trustedProxies: [10.0.0.0/8]}\ningress: {enabled: true, className: nginx, annotations: {a: b}, hosts: [pay.example, '*.pay.example'], tlsSecretName: tls}",
			[]string{"Ingress/merchant-operator-apiserver"}, nil},
		{"an ingress of any host", "apiserver: {clientsConnectDirectly: true}\ningress: {enabled: true}", []string{"Ingress/merchant-operator-apiserver"}, nil},
		{"an HTTPRoute", "apiserver: {trustedProxies: [10.0.0.0/8]}\nhttpRoute: {enabled: true, annotations: {a: b}, parentRefs: [{name: public, namespace: gateways}], hostnames: [pay.example]}",
			[]string{"HTTPRoute/merchant-operator-apiserver"}, nil},
		{"autoscaling", "apiserver: {autoscaling: {enabled: true}}", []string{"HorizontalPodAutoscaler/merchant-operator-apiserver"}, nil},
		{"rails", "rails: [{namespace: rails, serviceAccountName: card}, {namespace: rails, serviceAccountName: bank}]",
			[]string{"ClusterRoleBinding/merchant-operator-rail"}, nil},
		{"the console", withConsole, ofConsole, nil},
		{"the console with all that it may have", `
podDisruptionBudget: {enabled: true}
networkPolicy: {enabled: true}
apiserver: {internalCertificateSecretName: internal-tls}
console:
  enabled: true
  externalURL: https://console.example
  autoscaling: {enabled: true}
  trustedProxies: [10.0.0.0/8]
  oidc: {issuerURL: https://id.example, clientID: console, caSecretName: id-ca}
  ingress: {enabled: true, className: nginx, annotations: {a: b}, tlsSecretName: console-tls}
  httpRoute: {enabled: true, annotations: {a: b}, parentRefs: [{name: public}]}
`, slices.Concat(ofConsole, budgets, policies, []string{
			"HorizontalPodAutoscaler/merchant-operator-console", "Ingress/merchant-operator-console", "HTTPRoute/merchant-operator-console",
			"PodDisruptionBudget/merchant-operator-console", "NetworkPolicy/merchant-operator-console",
		}), nil},
		{"TLS on the internal port", "apiserver: {internalCertificateSecretName: internal-tls}", nil, nil},
		{"some namespaces only", "watchNamespaces: [shops, more-shops]", []string{
			"Role/merchant-operator@shops", "Role/merchant-operator@more-shops",
			"Role/merchant-operator-dispatcher@shops", "Role/merchant-operator-dispatcher@more-shops",
			"RoleBinding/merchant-operator@shops", "RoleBinding/merchant-operator@more-shops",
			"RoleBinding/merchant-operator-dispatcher@shops", "RoleBinding/merchant-operator-dispatcher@more-shops",
		}, []string{
			"ClusterRole/merchant-operator", "ClusterRole/merchant-operator-dispatcher",
			"ClusterRoleBinding/merchant-operator", "ClusterRoleBinding/merchant-operator-dispatcher",
		}},
		{"a place for the pods", placed, nil, nil},
		{"an image by digest", "image: {digest: 'sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef'}\nimagePullSecrets: [{name: registry}]", nil, nil},
		{"nobody but the programs themselves", nobody, policies, nil},
		{"a load balancer", "apiserver: {service: {type: LoadBalancer, annotations: {a: b}}, preStopSeconds: 0}", nil, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			text := render(t, least, test.values).stream()
			want := slices.DeleteFunc(slices.Concat(always, test.added), func(key string) bool { return slices.Contains(test.removed, key) })
			slices.Sort(want)
			if diff := cmp.Diff(want, slices.Sorted(maps.Keys(objects(t, text)))); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
			kubectl(t, text, "apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-")
		})
	}
}

const placed = `
operator: &role
  nodeSelector: {pool: payments}
  tolerations: [{key: pool, operator: Equal, value: payments, effect: NoSchedule}]
  affinity: {podAntiAffinity: {}}
  priorityClassName: system-cluster-critical
  podAnnotations: {a: b}
  podLabels: {team: payments}
  extraArgs: [--log-level=DEBUG]
  extraEnv: [{name: A, value: b}]
apiserver: *role
dispatcher: *role
console: *role
topologySpread: {keys: [rack], whenUnsatisfiable: DoNotSchedule}
`

const nobody = `
networkPolicy:
  enabled: true
  publicFrom: []
  internalFrom: []
  consoleFrom: []
  opsFrom: []
  dnsTo: []
  webhooksTo: []
  kubernetesAPI: {to: []}
  openIDProvider: {to: []}
  redis: {to: []}
`

var (
	valuesBlock   = regexp.MustCompile("(?sm)^( *)```yaml\n(.*?)```")
	appliedInText = regexp.MustCompile(`(?s)<<'YAML'\n(.*?)\nYAML\n`)
	chartInText   = regexp.MustCompile(`helm (?:install|upgrade(?: --install)?) merchant-operator (\S+)`)
)

// Readers copy what the page shows, so Helm and the API server are asked whether they take it.
func TestPages_ValuesAccepted(t *testing.T) {
	install := repository.Read(t, "docs", "install.md")
	var blocks [][]string
	for _, name := range []string{"sizing.md", "console.md"} {
		found := valuesBlock.FindAllStringSubmatch(repository.Read(t, "docs", name), -1)
		if len(found) == 0 {
			t.Errorf("docs/%s shows no values", name)
		}
		blocks = append(blocks, found...)
	}
	for _, block := range blocks {
		values := strings.ReplaceAll("\n"+block[2], "\n"+block[1], "\n") // blocks of lists are indented
		kubectl(t, render(t, values).stream(), "apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-")
	}
	applied := appliedInText.FindAllStringSubmatch(install, -1)
	if len(applied) == 0 {
		t.Error("docs/install.md applies no merchant")
	}
	for _, manifest := range applied {
		kubectl(t, manifest[1], "apply", "--dry-run=server", "-f", "-")
	}
	for _, name := range []string{"install.md", "upgrade.md"} {
		for _, found := range chartInText.FindAllStringSubmatch(repository.Read(t, "docs", name), -1) {
			if _, err := os.Stat(repository.Path(found[1])); err != nil {
				t.Errorf("docs/%s installs %s: %v", name, found[1], err)
			}
		}
	}
}

// Names in the commands are those of what the chart makes.
func TestPages_NamesExist(t *testing.T) {
	text := repository.Read(t, "docs", "install.md") + repository.Read(t, "docs", "upgrade.md") + repository.Read(t, "docs", "security.md")
	all := objects(t, render(t).stream())
	for words, key := range map[string]string{
		"service/merchant-operator-apiserver 8080":   "Service/merchant-operator-apiserver",
		"headless Service `merchant-operator-ops`":   "Service/merchant-operator-ops",
		"delete statefulset merchant-operator-redis": "StatefulSet/merchant-operator-redis",
		"delete crd apikeys.merchant-operator.io":    "CustomResourceDefinition/apikeys.merchant-operator.io",
		"delete namespace " + credentials:            "Namespace/" + credentials,
		"| `merchant-operator-dispatcher` |":         "ServiceAccount/merchant-operator-dispatcher",
	} {
		if !strings.Contains(text, words) {
			t.Errorf("the pages do not say %q", words)
		}
		one(t, all, key)
	}
}
