package chart

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/test/verify/program"
)

// every value that becomes an argument, with numbers that are easily printed as 1e+06.
const allArguments = `
logLevel: DEBUG
history: {age: 48h, entries: 20000000}
receipts: {smtpURL: 'smtp://mail.example.com:587', from: 'Example Pay <receipts@pay.example.com>', credentialsSecretName: smtp, caSecretName: smtp-ca}
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
  publicRateLimit: {requestsPerSecond: 1000000, burst: 20000000}
  streams: {max: 1000000, maxPerAddress: 20000000}
  drainDelaySeconds: 0
dispatcher:
  allowHTTP: true
  allowCIDRs: [10.1.0.0/16]
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
func TestTheProgramKnowsItsArguments(t *testing.T) {
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
func TestValuesBecomeArguments(t *testing.T) {
	all := templates(t, allArguments)
	for name, want := range map[string][]string{
		"merchant-operator": {"--log-level=DEBUG", "--watch-namespaces=shops,more-shops", "--credentials-namespace=" + credentials},
		"merchant-operator-apiserver": {
			"--trusted-proxies=10.0.0.0/8,fd00::/8", "--qr-scheme=web+pay", "--qr-content=Link", "--payment-app-url=https://bank.example.com/pay?session={sessionId}", "--public-url=https://pay.example.com", "--session-retention=96h30m",
			"--history=48h", "--history-entries=20000000", "--receipts",
			"--public-rate=1000000", "--public-burst=20000000", "--max-streams=1000000", "--max-streams-per-address=20000000", "--drain-delay=0s",
			"--internal-cert-dir=/etc/merchant-operator/internal-certificate", "--internal-audience=pay",
		},
		"merchant-operator-dispatcher": {
			"--webhook-allow-http", "--webhook-allow-cidrs=10.1.0.0/16", "--webhook-concurrency=1000000",
			"--webhook-max-in-flight=20000000", "--webhook-failing-limit=24h", "--history=48h", "--history-entries=20000000",
			"--smtp-url=smtp://mail.example.com:587", "--smtp-from=Example Pay <receipts@pay.example.com>", "--smtp-ca-file=/etc/merchant-operator/smtp-ca/ca.crt",
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
func TestFilesInArgumentsAreMounted(t *testing.T) {
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
func TestTheConsoleHasProxiesOfItsOwn(t *testing.T) {
	container := templates(t, withConsole, "apiserver: {trustedProxies: [10.0.0.0/8]}", "console: {trustedProxies: [10.9.0.0/16]}")["merchant-operator-console"].Spec.Containers[0]
	if !slices.Contains(container.Args, "--trusted-proxies=10.9.0.0/16") {
		t.Errorf("the console is started with %v", container.Args)
	}
}

// The key of the internal port's certificate is mounted in the apiserver only, its certificate authority in the console.
func TestTheCertificateOfTheInternalPort(t *testing.T) {
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
