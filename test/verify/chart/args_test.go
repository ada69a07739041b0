package chart

import (
	"slices"
	"strings"
	"testing"

	"github.com/merchant-operator/merchant-operator/test/verify/program"
)

// every value that becomes an argument, with numbers that are easily printed as 1e+06.
const allArguments = `
logLevel: DEBUG
watchNamespaces: [shops, more-shops]
apiserver:
  trustedProxies: [10.0.0.0/8, "fd00::/8"]
  qrScheme: web+pay
  internalCertificateSecretName: internal-tls
  qrContent: Link
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
			"--trusted-proxies=10.0.0.0/8,fd00::/8", "--qr-scheme=web+pay", "--qr-content=Link", "--public-url=https://pay.example.com", "--session-retention=96h30m",
			"--public-rate=1000000", "--public-burst=20000000", "--max-streams=1000000", "--max-streams-per-address=20000000", "--drain-delay=0s",
			"--internal-cert-dir=/etc/merchant-operator/internal-certificate",
		},
		"merchant-operator-dispatcher": {
			"--webhook-allow-http", "--webhook-allow-cidrs=10.1.0.0/16", "--webhook-concurrency=1000000",
			"--webhook-max-in-flight=20000000", "--webhook-failing-limit=24h",
		},
	} {
		for _, argument := range want {
			if passed := all[name].Spec.Containers[0].Args; !strings.Contains(strings.Join(passed, " ")+" ", " "+argument+" ") {
				t.Errorf("%s is started without %s: %v", name, argument, passed)
			}
		}
	}
}

// The key of the internal port's certificate is mounted where it is used, and nowhere else.
func TestTheCertificateOfTheInternalPort(t *testing.T) {
	for name, template := range templates(t, "apiserver: {internalCertificateSecretName: internal-tls}") {
		var mounted []string
		for _, volume := range template.Spec.Volumes {
			if volume.Secret != nil {
				mounted = append(mounted, volume.Secret.SecretName)
			}
		}
		want := name == "merchant-operator-apiserver"
		if got := slices.Contains(mounted, "internal-tls"); got != want {
			t.Errorf("%s has the certificate: %t, want %t", name, got, want)
		}
		if !want {
			continue
		}
		mounts := template.Spec.Containers[0].VolumeMounts
		if len(mounts) != 1 || mounts[0].MountPath != "/etc/merchant-operator/internal-certificate" || !mounts[0].ReadOnly {
			t.Errorf("%s mounts %+v", name, mounts)
		}
	}
}
