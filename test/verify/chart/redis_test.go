package chart

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
	corev1 "k8s.io/api/core/v1"
)

// secrets are what the kubelet would find, by Secret and key.
var secrets = map[string]string{
	"redis/password": "pass%2Fword", "redis/user": "till", "sentinels/password": "watch", "sentinels/user": "guard",
	"redis-url/address": "rediss://till:word@redis.example:6379/2", "console-oidc/client-secret": "hush-hush",
}

// insecure allows a Redis without a password and TLS.
const insecure = "redis: {allowInsecure: true}"

// A client of the Redis decides which keys are valid, so one without protection must be asked for.
func TestRedis_Unprotected(t *testing.T) {
	const (
		notes    = "merchant-operator/templates/NOTES.txt"
		warning  = "WARNING: The connection to Redis is not protected"
		password = "auth: {secretName: redis}"
		tls      = "tls: {enabled: true}"
	)
	for desc, test := range map[string]struct {
		values  string
		missing []string // nil: nothing
	}{
		"a server":                  {"type: Server, addresses: ['r:6379']", []string{"redis.auth.secretName", "redis.tls.enabled"}},
		"a server with a password":  {"type: Server, addresses: ['r:6379'], " + password, []string{"redis.tls.enabled"}},
		"a server with TLS":         {"type: Server, addresses: ['r:6379'], " + tls, []string{"redis.auth.secretName"}},
		"a protected server":        {"type: Server, addresses: ['r:6379'], " + tls + ", " + password, nil},
		"Sentinels":                 {"type: Sentinel, addresses: ['r:1'], sentinel: {masterName: pay}", []string{"redis.auth.secretName", "redis.tls.enabled"}},
		"a Cluster":                 {"type: Cluster, addresses: ['r:1'], " + password, []string{"redis.tls.enabled"}},
		"a URL, which has both":     {"type: URL, url: {secretName: redis-url}", nil},
		"the bundled one, its note": {"type: Bundled", nil},
	} {
		t.Run(desc, func(t *testing.T) {
			values := "redis: {" + test.values + "}"
			if test.missing != nil {
				assertRefused(t, append([]string{"redis.allowInsecure"}, test.missing...), values)
			}
			text := render(t, insecure, values)[notes]
			if strings.Contains(text, warning) != (test.missing != nil) {
				t.Errorf("the notes are\n%s", text)
			}
			for _, value := range test.missing {
				if !strings.Contains(text, value) {
					t.Errorf("the notes do not name %s:\n%s", value, text)
				}
			}
		})
	}
}

// Unless a value says otherwise the program decides how many replicas must have a settlement: it knows Sentinels and a Redis Cluster by the URL.
func TestRedis_SettlementReplicas(t *testing.T) {
	const warning = "WARNING: redis.settlementReplicas is 0"
	for desc, test := range map[string]struct {
		values string
		want   []string
		warned bool
	}{
		"Sentinels":                 {"type: Sentinel, addresses: ['r:1'], sentinel: {masterName: pay}", nil, false},
		"Sentinels without waiting": {"type: Sentinel, addresses: ['r:1'], sentinel: {masterName: pay}, settlementReplicas: 0", []string{"0"}, true},
		"a Cluster":                 {"type: Cluster, addresses: ['r:1']", nil, false},
		"a Cluster without waiting": {"type: Cluster, addresses: ['r:1'], settlementReplicas: 0", []string{"0"}, true},
		"a Cluster with two":        {"type: Cluster, addresses: ['r:1'], settlementReplicas: 2", []string{"2"}, false},
		"the bundled one":           {"type: Bundled, settlementReplicas: 0", []string{"0"}, false},
	} {
		t.Run(desc, func(t *testing.T) {
			values := "redis: {" + test.values + "}"
			var got []string
			for _, arg := range templates(t, insecure, values)["merchant-operator-apiserver"].Spec.Containers[0].Args {
				if replicas, ok := strings.CutPrefix(arg, "--settlement-replicas="); ok {
					got = append(got, replicas)
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("--settlement-replicas is %v, want %v", got, test.want)
			}
			if text := render(t, insecure, values)["merchant-operator/templates/NOTES.txt"]; strings.Contains(text, warning) != test.warned {
				t.Errorf("the notes are\n%s", text)
			}
		})
	}
	assertRefused(t, []string{"settlementReplicas"}, "redis: {settlementReplicas: -1}")
}

func TestRedis_URL(t *testing.T) {
	tests := map[string]struct{ values, want string }{
		"bundled":             {"", "redis://merchant-operator-redis:6379/0"},
		"bundled, other name": {"fullnameOverride: pay", "redis://pay-redis:6379/0"},
		"a server":            {"redis: {type: Server, addresses: ['r:6379']}", "redis://r:6379/0"},
		"a server's database": {"redis: {type: Server, addresses: ['[fd00::1]:6379'], database: 3}", "redis://[fd00::1]:6379/3"},
		"a server with TLS and a password": {
			"redis: {type: Server, addresses: ['r:6379'], tls: {enabled: true}, auth: {secretName: redis}}",
			"rediss://:pass%2Fword@r:6379/0"},
		"a server with a user": {
			"redis: {type: Server, addresses: ['r:6379'], auth: {secretName: redis, usernameKey: user}}",
			"redis://till:pass%2Fword@r:6379/0"},
		"a Cluster": {
			"redis: {type: Cluster, addresses: ['a:1', 'b:2', 'c:3'], auth: {secretName: redis, usernameKey: user}}",
			"redis+cluster://till:pass%2Fword@a:1?addr=b:2&addr=c:3"},
		"one server of a Cluster, with TLS": {
			"redis: {type: Cluster, addresses: ['a:1'], tls: {enabled: true}}", "rediss+cluster://a:1"},
		"Sentinels": {
			"redis: {type: Sentinel, addresses: ['a:1', 'b:2'], sentinel: {masterName: 'my pay'}}",
			"redis+sentinel://a:1/0?master_name=my+pay&addr=b:2"},
		"Sentinels with passwords": {
			"redis: {type: Sentinel, addresses: ['a:1'], database: 1, tls: {enabled: true}, auth: {secretName: redis, usernameKey: user}, " +
				"sentinel: {masterName: pay, auth: {secretName: sentinels, usernameKey: user}}}",
			"rediss+sentinel://guard:watch@a:1/1?master_name=pay&username=till&password=pass%2Fword"},
		"a whole URL": {"redis: {type: URL, url: {secretName: redis-url, secretKey: address}}", secrets["redis-url/address"]},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			text := render(t, withConsole, insecure, test.values).stream()
			all := templates(t, withConsole, insecure, test.values)
			for role, template := range all {
				if !strings.HasSuffix(role, "-apiserver") && !strings.HasSuffix(role, "-dispatcher") && !strings.HasSuffix(role, "-console") {
					continue
				}
				container := template.Spec.Containers[0]
				got := environment(t, container)["REDIS_URL"]
				if got != test.want {
					t.Errorf("%s: REDIS_URL is %s, want %s", role, got, test.want)
				}
				if s, err := redis.Open(redis.Options{URL: got}); err != nil {
					t.Errorf("%s: the program refuses it: %v", role, err)
				} else if err := s.Close(); err != nil {
					t.Error(err)
				}
				if strings.Contains(strings.Join(container.Args, " "), "redis-url") {
					t.Errorf("%s: the URL is among the arguments, where a process list shows it", role)
				}
			}
			for _, secret := range []string{"pass%2Fword", "watch@"} {
				if strings.Contains(text, secret) {
					t.Errorf("the manifests hold the secret %q", secret)
				}
			}
		})
	}
}

// environment is what the kubelet would make of a container's variables.
func environment(t *testing.T, container corev1.Container) map[string]string {
	t.Helper()
	values := map[string]string{}
	for _, variable := range container.Env {
		value := variable.Value
		if from := variable.ValueFrom; from != nil && from.FieldRef != nil {
			values[variable.Name] = from.FieldRef.FieldPath // as good as what the pod has there
			continue
		} else if from != nil {
			known, found := secrets[from.SecretKeyRef.Name+"/"+from.SecretKeyRef.Key]
			if !found {
				t.Fatalf("%s is from the unknown Secret %v", variable.Name, from.SecretKeyRef)
			}
			values[variable.Name] = known
			continue
		}
		// Only variables that stand before it are expanded.
		for name, earlier := range values {
			value = strings.ReplaceAll(value, "$("+name+")", earlier)
		}
		values[variable.Name] = value
	}
	return values
}

// The bundled server is started as the chart starts it, but for its place: it must take what the product needs.
func TestRedis_BundledPassesCheck(t *testing.T) {
	container := templates(t)["merchant-operator-redis"].Spec.Containers[0]
	if diff := cmp.Diff([]string{"redis-server"}, container.Command); diff != "" {
		t.Errorf("command (-want +got):\n%s", diff)
	}
	if container.Args[0] != "--dir" || container.VolumeMounts[0].MountPath != container.Args[1] {
		t.Errorf("its data are not on the volume: %v", container.Args)
	}
	server := redistest.Start(t, container.Args[2:]...)
	s := storetest.Client(t, server.URL())
	if err := s.Check(t.Context()); err != nil {
		t.Error(err)
	}
	if policy, err := s.EvictionPolicy(t.Context()); err != nil || policy != "noeviction" {
		t.Errorf("the eviction policy is %q (%v), want noeviction", policy, err)
	}
}

// Go reads the directories of SSL_CERT_DIR besides the bundle of the image.
func TestRedis_OwnCertificateAuthority(t *testing.T) {
	all := templates(t, withConsole, "redis: {type: Server, addresses: ['r:1'], tls: {enabled: true, caSecretName: ca}, auth: {secretName: redis}}")
	for _, role := range roles {
		container := all[role].Spec.Containers[0]
		var directory string
		for _, volume := range all[role].Spec.Volumes {
			for _, mount := range container.VolumeMounts {
				if volume.Secret != nil && volume.Secret.SecretName == "ca" && mount.Name == volume.Name {
					directory = mount.MountPath
				}
			}
		}
		if trusted := environment(t, container)["SSL_CERT_DIR"]; trusted != directory || (directory == "") != (role == "merchant-operator") {
			t.Errorf("%s trusts what is in %q, and the authority is in %q", role, trusted, directory)
		}
	}
}

// The client secret of the console is in its environment, from a Secret, and nowhere else.
func TestConsole_ClientSecret(t *testing.T) {
	for values, want := range map[string]string{"": "hush-hush", "console: {oidc: {clientSecretName: ''}}": ""} {
		for name, template := range templates(t, withConsole, values) {
			container := template.Spec.Containers[0]
			got, found := environment(t, container)["OIDC_CLIENT_SECRET"]
			if name != "merchant-operator-console" && found || name == "merchant-operator-console" && got != want {
				t.Errorf("%s with %q has the client secret %q", name, values, got)
			}
		}
	}
}
