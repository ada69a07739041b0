package chart

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/console"
	"github.com/merchant-operator/merchant-operator/controllers"
	"github.com/merchant-operator/merchant-operator/dispatcher"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/test/verify/program"
)

// roles are all Deployments, of which the console is optional.
var roles = []string{"merchant-operator", "merchant-operator-apiserver", "merchant-operator-console", "merchant-operator-dispatcher"}

// withConsole turns on the console, with the least that it needs.
const withConsole = `
console:
  enabled: true
  externalURL: https://console.example
  oidc: {issuerURL: https://id.example, clientID: console, clientSecretName: console-oidc}
apiserver: {internalCertificateSecretName: internal-tls}
`

// templates are the pods of everything the chart runs, by name.
func templates(t *testing.T, values ...string) map[string]corev1.PodTemplateSpec {
	t.Helper()
	all := objects(t, render(t, values...).stream())
	out := map[string]corev1.PodTemplateSpec{}
	for key := range all {
		if name, found := strings.CutPrefix(key, "Deployment/"); found {
			out[name] = get[appsv1.Deployment](t, all, key).Spec.Template
		}
		if name, found := strings.CutPrefix(key, "StatefulSet/"); found {
			out[name] = get[appsv1.StatefulSet](t, all, key).Spec.Template
		}
	}
	return out
}

// The namespace enforces the restricted Pod Security Standard, so the API server refuses a pod that does not
// keep it. A Deployment would be accepted, and then never get its pods.
func TestPods_RestrictedStandard(t *testing.T) {
	for _, values := range []string{"", placed, "redis: {bundled: {persistence: {enabled: false}}}", "redis: {allowInsecure: true, type: Server, addresses: ['a:1'], tls: {enabled: true, caSecretName: ca}}", "console: {certificateSecretName: console-tls, oidc: {caSecretName: id-ca}}"} {
		for name, template := range templates(t, withConsole, values) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: system, GenerateName: name + "-", Labels: template.Labels}, Spec: template.Spec}
			if name == "merchant-operator-redis" { // whose volume the StatefulSet's controller adds
				pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
			}
			if err := cluster.Client.Create(t.Context(), pod, client.DryRunAll); err != nil {
				t.Errorf("a pod of %s with %q: %v", name, values, err)
			}
		}
	}
}

// The console sends a token that only the API accepts, so an apiserver can do nothing with it at the Kubernetes API.
func TestConsole_TokenForTheInternalPort(t *testing.T) {
	for values, audience := range map[string]string{"": "merchant-operator", "apiserver: {internalAudience: 'pay:internal'}": "pay:internal", "apiserver: {internalAudience: ''}": ""} {
		all := templates(t, withConsole, values)
		want := ""
		for _, volume := range all["merchant-operator-console"].Spec.Volumes {
			if volume.Name != "internal-token" {
				continue
			}
			token := volume.Projected.Sources[0].ServiceAccountToken
			if want = "--internal-token-file=/etc/merchant-operator/internal-token/" + token.Path; token.Audience != audience {
				t.Errorf("%s: a token for %s", values, token.Audience)
			}
		}
		for name, want := range map[string]string{"merchant-operator-console": want, "merchant-operator-apiserver": "--internal-audience=" + audience} {
			if got := slices.Contains(all[name].Spec.Containers[0].Args, want); got != (audience != "") {
				t.Errorf("%s: %s has %q: %v", values, name, want, got)
			}
		}
	}
}

func TestPods_HaveWhatTheyNeed(t *testing.T) {
	all := objects(t, render(t, withConsole).stream())
	for _, name := range roles {
		deployment := get[appsv1.Deployment](t, all, "Deployment/"+name)
		pod := deployment.Spec.Template.Spec
		if pod.ServiceAccountName != name {
			t.Errorf("%s runs as %s", name, pod.ServiceAccountName)
		}
		get[corev1.ServiceAccount](t, all, "ServiceAccount/"+name)
		if *deployment.Spec.Replicas < 2 {
			t.Errorf("%s has %d replicas, want at least 2", name, *deployment.Spec.Replicas)
		}
		container := pod.Containers[0]
		if options := pod.DNSConfig.Options; len(options) != 1 || options[0].Name != "ndots" || *options[0].Value != "1" {
			t.Errorf("%s resolves names with %v", name, options)
		}
		if container.LivenessProbe.HTTPGet.Path != "/healthz" || container.ReadinessProbe.HTTPGet.Path != "/readyz" {
			t.Errorf("%s is not probed at /healthz and /readyz", name)
		}
		if container.Resources.Limits.Memory().IsZero() || container.Resources.Requests.Cpu().IsZero() {
			t.Errorf("%s bounds no memory or requests no CPU", name)
		}
		if !*container.SecurityContext.ReadOnlyRootFilesystem {
			t.Errorf("%s can write to its own file system", name)
		}
		if len(pod.TopologySpreadConstraints) != 2 {
			t.Errorf("%s is spread over %d kinds of places, want nodes and zones", name, len(pod.TopologySpreadConstraints))
		}
		budget := get[policyv1.PodDisruptionBudget](t, all, "PodDisruptionBudget/"+name)
		selectsOnly(t, "the budget of "+name, budget.Spec.Selector.MatchLabels, name)
		selectsOnly(t, "the Deployment "+name, deployment.Spec.Selector.MatchLabels, name)
		for _, spread := range pod.TopologySpreadConstraints {
			selectsOnly(t, "the spread of "+name, spread.LabelSelector.MatchLabels, name)
		}
	}
}

// With a number of pods in the manifest, every upgrade would undo what the autoscaler did.
func TestPods_ReplicasWithAutoscaling(t *testing.T) {
	all := objects(t, render(t, withConsole, "{apiserver: {autoscaling: {enabled: true}}, console: {autoscaling: {enabled: true}}}").stream())
	for _, name := range []string{"merchant-operator-apiserver", "merchant-operator-console"} {
		if replicas := get[appsv1.Deployment](t, all, "Deployment/"+name).Spec.Replicas; replicas != nil {
			t.Errorf("the Deployment %s asks for %d pods", name, *replicas)
		}
		if scaled := get[autoscalingv2.HorizontalPodAutoscaler](t, all, "HorizontalPodAutoscaler/"+name).Spec.ScaleTargetRef; scaled.Kind != "Deployment" || scaled.Name != name {
			t.Errorf("the autoscaler %s scales %v", name, scaled)
		}
	}
}

// The kubelet kills what is left at the end of the grace period, and requests or deliveries with it.
func TestPods_GracePeriodExceedsDrain(t *testing.T) {
	grace := func(template corev1.PodTemplateSpec) time.Duration {
		return time.Duration(*template.Spec.TerminationGracePeriodSeconds) * time.Second
	}
	for _, values := range []string{"", "apiserver: {preStopSeconds: 60, drainDelaySeconds: 120}", "apiserver: {preStopSeconds: 0, drainDelaySeconds: 0}"} {
		all := templates(t, withConsole, values)
		for role, shutdown := range map[string]time.Duration{
			"merchant-operator": controllers.DefaultOptions().ShutdownTimeout, "merchant-operator-apiserver": apiserver.DefaultOptions().ShutdownTimeout,
			"merchant-operator-dispatcher": dispatcher.DefaultOptions().ShutdownTimeout, "merchant-operator-console": console.DefaultOptions().ShutdownTimeout,
		} {
			if got, need := grace(all[role]), drain(t, all[role].Spec.Containers[0])+shutdown; got < need+5*time.Second {
				t.Errorf("with %q %s has %s to end and needs %s", values, role, got, need)
			}
		}
	}
}

// drain is how long a container that ends serves on.
func drain(t *testing.T, container corev1.Container) (total time.Duration) {
	t.Helper()
	if container.Lifecycle != nil {
		total = time.Duration(container.Lifecycle.PreStop.Sleep.Seconds) * time.Second
	}
	for _, argument := range container.Args {
		if text, found := strings.CutPrefix(argument, "--drain-delay="); found {
			delay, err := time.ParseDuration(text)
			if err != nil {
				t.Fatal(err)
			}
			total += delay
		}
	}
	return total
}

// every value that becomes an argument, with numbers that are easily printed as 1e+06.
const allArguments = `
logLevel: DEBUG
history: {age: 48h, entries: 20000000}
receipts: {smtpURL: 'smtp://mail.example.com:587', from: 'Example Pay <receipts@pay.example.com>', helo: '[192.0.2.1]', credentialsSecretName: smtp, caSecretName: smtp-ca}
watchNamespaces: [shops, more-shops]
apiserver:
  trustedProxies: [10.0.0.0/8, "fd00::/8"]
  qrScheme: web+pay
  internalCertificateSecretName: internal-tls
  internalAudience: pay
  qrContent: Link
  paymentAppURL: https://bank.example.com/pay?session={sessionId}
  publicURL: https://pay.example.com
  sessionRetention: 96h30m
  maxSessionsPerDay: 20000000
  publicRateLimit: {requestsPerSecond: 1000000, burst: 20000000}
  streams: {max: 1000000, maxPerAddress: 20000000}
  drainDelaySeconds: 0
dispatcher:
  allowHTTP: true
  allowCIDRs: [10.1.0.0/16]
  denyCIDRs: [10.1.9.0/24, 166.8.0.0/14]
  denyDomains: [svc, k8s.example]
  concurrency: 1000000
  maxInFlight: 20000000
  failingLimit: 24h
console:
  enabled: true
  externalURL: https://console.example.com
  certificateSecretName: console-tls
  oidc:
    issuerURL: https://id.example.com/realms/shops
    clientID: merchant-console
    clientSecretName: console-oidc
    caSecretName: id-ca
    scopes: [profile, groups]
    usernameClaim: email
    usernamePrefix: "user:"
    groupsClaim: groups
    groupsPrefix: "oidc:"
  loginIdle: 30m
  loginLifetime: 8h
  addressLimit: {requestsPerSecond: 1000000, burst: 20000000}
`

// The chart and the program must not drift apart: the program itself is asked whether it knows the arguments.
func TestArguments_KnownToProgram(t *testing.T) {
	check := program.New(t)
	for _, values := range []string{"", allArguments} {
		for name, template := range templates(t, values) {
			if name != "merchant-operator-redis" {
				check(name, template.Spec.Containers[0].Args)
			}
		}
	}
}

// What is set is what is passed on; the program's own words are in its tests.
func TestArguments_FromValues(t *testing.T) {
	all := templates(t, allArguments)
	for name, want := range map[string][]string{
		"merchant-operator": {"--log-level=DEBUG", "--watch-namespaces=shops,more-shops", "--credentials-namespace=" + credentials},
		"merchant-operator-apiserver": {
			"--trusted-proxies=10.0.0.0/8,fd00::/8", "--qr-scheme=web+pay", "--qr-content=Link", "--payment-app-url=https://bank.example.com/pay?session={sessionId}", "--public-url=https://pay.example.com", "--session-retention=96h30m", "--max-sessions-per-day=20000000",
			"--history=48h", "--history-entries=20000000", "--receipts",
			"--public-rate=1000000", "--public-burst=20000000", "--max-streams=1000000", "--max-streams-per-address=20000000", "--drain-delay=0s",
			"--internal-cert-dir=/etc/merchant-operator/internal-certificate", "--internal-audience=pay",
		},
		"merchant-operator-dispatcher": {
			"--webhook-allow-http", "--webhook-allow-cidrs=10.1.0.0/16", "--webhook-deny-cidrs=10.1.9.0/24,166.8.0.0/14", "--webhook-deny-domains=svc,k8s.example", "--webhook-concurrency=1000000",
			"--webhook-max-in-flight=20000000", "--webhook-failing-limit=24h", "--history=48h", "--history-entries=20000000",
			"--smtp-url=smtp://mail.example.com:587", "--smtp-from=Example Pay <receipts@pay.example.com>", "--smtp-helo=[192.0.2.1]",
			"--smtp-ca-file=/etc/merchant-operator/smtp-ca/ca.crt",
		},
		"merchant-operator-console": {
			"--log-level=DEBUG", "--watch-namespaces=shops,more-shops", "--external-url=https://console.example.com", "--api-url=https://pay.example.com",
			"--internal-url=https://merchant-operator-apiserver-internal." + system + ".svc:8081", "--internal-ca-file=/etc/merchant-operator/internal-ca/ca.crt",
			"--console-cert-dir=/etc/merchant-operator/console-certificate", "--oidc-issuer-url=https://id.example.com/realms/shops", "--oidc-client-id=merchant-console", "--oidc-ca-file=/etc/merchant-operator/oidc-ca/ca.crt",
			"--oidc-scopes=profile,groups", "--oidc-username-claim=email", "--oidc-username-prefix=user:", "--oidc-groups-claim=groups",
			"--oidc-groups-prefix=oidc:", "--login-idle=30m", "--login-lifetime=8h", "--trusted-proxies=10.0.0.0/8,fd00::/8",
			"--address-rate=1000000", "--address-burst=20000000", "--history=48h", "--history-entries=20000000",
		},
	} {
		for _, argument := range want {
			if passed := all[name].Spec.Containers[0].Args; !strings.Contains(strings.Join(passed, " ")+" ", " "+argument+" ") {
				t.Errorf("%s is started without %s: %v", name, argument, passed)
			}
		}
	}
}

// A file that an argument names is in a volume, and what is mounted is used.
func TestArguments_FilesMounted(t *testing.T) {
	for name, template := range templates(t, allArguments, monitored, "monitoring: {certificateSecretName: ops-tls}") {
		container := template.Spec.Containers[0]
		var named, mounted []string
		for _, argument := range container.Args {
			if _, path, found := strings.Cut(argument, "=/etc/merchant-operator/"); found {
				directory, _, _ := strings.Cut(path, "/")
				named = append(named, "/etc/merchant-operator/"+directory)
			}
		}
		for _, mount := range container.VolumeMounts {
			if strings.HasPrefix(mount.MountPath, "/etc/") {
				mounted = append(mounted, mount.MountPath)
			}
		}
		slices.Sort(named)
		slices.Sort(mounted)
		if diff := cmp.Diff(named, mounted); diff != "" {
			t.Errorf("directories of %s (-named +mounted):\n%s", name, diff)
		}
	}
}

// The console may be behind other proxies than the API.
func TestConsole_TrustedProxies(t *testing.T) {
	container := templates(t, withConsole, "apiserver: {trustedProxies: [10.0.0.0/8]}", "console: {trustedProxies: [10.9.0.0/16]}")["merchant-operator-console"].Spec.Containers[0]
	if !slices.Contains(container.Args, "--trusted-proxies=10.9.0.0/16") {
		t.Errorf("the console is started with %v", container.Args)
	}
}

// The key of the internal port's certificate is mounted in the apiserver only, its certificate authority in the console.
func TestInternalPort_Certificate(t *testing.T) {
	want := map[string]string{
		"merchant-operator-apiserver": "all at /etc/merchant-operator/internal-certificate",
		"merchant-operator-console":   "ca.crt at /etc/merchant-operator/internal-ca",
	}
	for name, template := range templates(t, withConsole) {
		var got string
		for _, volume := range template.Spec.Volumes {
			if volume.Secret == nil || volume.Secret.SecretName != "internal-tls" {
				continue
			}
			got = "all"
			for _, item := range volume.Secret.Items {
				got = item.Path
			}
			for _, mount := range template.Spec.Containers[0].VolumeMounts {
				if mount.Name == volume.Name && mount.ReadOnly {
					got += " at " + mount.MountPath
				}
			}
		}
		if got != want[name] {
			t.Errorf("%s mounts %q of the certificate, want %q", name, got, want[name])
		}
	}
}
