package chart

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// reach says, for one pod, who is let in at which port, and where it may go.
type reach struct{ In, Out []string }

const public = "0.0.0.0/0 but 10.0.0.0/8 but 34.118.224.0/20 but 100.64.0.0/10 but 127.0.0.0/8 but 166.8.0.0/14 but 169.254.0.0/16 but 172.16.0.0/12 but 192.168.0.0/16, ::/0 but fc00::/7 but fe80::/10"

func TestNetworkPolicy_Roles(t *testing.T) {
	const (
		private    = "10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, 100.64.0.0/10, fd00::/8"
		monitoring = "namespace monitoring: ops"
		dns        = "namespace kube-system: 53 53"
		api        = private + ": 443 6443"
		redis      = "merchant-operator-redis: redis"
	)
	want := map[string]reach{
		"merchant-operator": {[]string{monitoring}, []string{dns, api}},
		"merchant-operator-apiserver": {
			[]string{"namespaces of gateways: public", "rail=true of rails, rail=true of more-rails: internal", "namespace portals: internal", "console: internal", monitoring},
			[]string{dns, api, redis},
		},
		"merchant-operator-dispatcher": {[]string{monitoring}, []string{dns, api, redis, public + ": any port"}},
		"merchant-operator-redis":      {[]string{"apiserver, dispatcher, console: redis"}, nil},
		"merchant-operator-console": {
			[]string{"namespaces of gateways: console", monitoring},
			[]string{dns, api, redis, "apiserver: internal", "0.0.0.0/0 but 127.0.0.0/8 but 169.254.0.0/16, ::/0 but fe80::/10: 443"},
		},
	}
	const withRails = `
rails: [{namespace: rails, serviceAccountName: card}, {namespace: rails, serviceAccountName: bank}, {namespace: more-rails, serviceAccountName: bank}]
networkPolicy: {internalFrom: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: portals}}}]}
`
	all := objects(t, render(t, withConsole, withRails).stream())
	got := map[string]reach{}
	for name := range want {
		policy := get[networkingv1.NetworkPolicy](t, all, "NetworkPolicy/"+name)
		selectsOnly(t, "the policy "+name, policy.Spec.PodSelector.MatchLabels, name)
		if len(policy.Spec.PolicyTypes) != 2 {
			t.Errorf("%s leaves a direction open: %v", name, policy.Spec.PolicyTypes)
		}
		got[name] = newReach(policy)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("who reaches what (-want +got):\n%s", diff)
	}
}

// Receipts open the dispatcher's way to the mail server, and no other role's.
func TestNetworkPolicy_Receipts(t *testing.T) {
	const rule = "0.0.0.0/0 but 127.0.0.0/8 but 169.254.0.0/16, ::/0 but fe80::/10: 465 587"
	const withReceipts = "receipts: {smtpURL: 'smtps://mail.example.com', from: a@b.example}"
	all := objects(t, render(t, withReceipts).stream())
	for _, name := range []string{"merchant-operator", "merchant-operator-apiserver", "merchant-operator-dispatcher"} {
		out := newReach(get[networkingv1.NetworkPolicy](t, all, "NetworkPolicy/"+name)).Out
		if got := slices.Contains(out, rule); got != (name == "merchant-operator-dispatcher") {
			t.Errorf("%s may go to %q", name, out)
		}
	}
	all = objects(t, render(t, withReceipts, "networkPolicy: {mailServer: {to: []}}").stream())
	out := newReach(get[networkingv1.NetworkPolicy](t, all, "NetworkPolicy/merchant-operator-dispatcher")).Out
	if strings.Contains(strings.Join(out, ";"), "465") {
		t.Errorf("with no addresses the dispatcher may go to %q", out)
	}
}

// An empty list of peers in a rule would let everybody through.
func TestNetworkPolicy_NoPeers(t *testing.T) {
	all := objects(t, render(t, withConsole, nobody, insecure, "redis: {type: Server, addresses: ['r:1']}").stream())
	want := map[string]reach{"merchant-operator-apiserver": {In: []string{"console: internal"}}, "merchant-operator-console": {Out: []string{"apiserver: internal"}}}
	for _, name := range roles {
		if diff := cmp.Diff(want[name], newReach(get[networkingv1.NetworkPolicy](t, all, "NetworkPolicy/"+name))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// Without a console, nothing is open for one.
func TestNetworkPolicy_WithoutConsole(t *testing.T) {
	all := objects(t, render(t).stream())
	for _, name := range []string{"merchant-operator-apiserver", "merchant-operator-redis"} {
		if in := strings.Join(newReach(get[networkingv1.NetworkPolicy](t, all, "NetworkPolicy/"+name)).In, "; "); strings.Contains(in, "console") {
			t.Errorf("%s admits %s", name, in)
		}
	}
}

func TestNetworkPolicy_WebhookBlocks(t *testing.T) {
	all := objects(t, render(t, "dispatcher: {allowCIDRs: [10.9.0.0/16]}").stream())
	out := newReach(get[networkingv1.NetworkPolicy](t, all, "NetworkPolicy/merchant-operator-dispatcher")).Out
	if got, want := out[len(out)-1], public+", 10.9.0.0/16: any port"; got != want {
		t.Errorf("webhooks may go to %s, want %s", got, want)
	}
}

// Rails and monitoring must not be reached from outside, by whichever way requests come in, and the console has a host of its own.
func TestRoutes_PublicPortsOnly(t *testing.T) {
	const routed = `
apiserver: {trustedProxies: [10.0.0.0/8]}
ingress: {enabled: true, hosts: [a.example, b.example]}
httpRoute: {enabled: true, parentRefs: [{name: public}], hostnames: [a.example, b.example]}
console: {certificateSecretName: console-tls, externalURL: 'https://console.example:8443/', ingress: {enabled: true, tlsSecretName: console-tls}, httpRoute: {enabled: true, parentRefs: [{name: public}]}}
`
	all := objects(t, render(t, withConsole, routed).stream())
	for name, want := range map[string]struct {
		port  int32
		named string
		hosts []string
	}{
		"merchant-operator-apiserver": {8080, "http", []string{"a.example", "b.example"}},
		"merchant-operator-console":   {8083, "https", []string{"console.example"}},
	} {
		service := get[corev1.Service](t, all, "Service/"+name).Spec.Ports[0]
		if service.Name != want.named || service.Port != want.port {
			t.Errorf("the Service %s has the port %s, %d", name, service.Name, service.Port)
		}
		var hosts, hostnames []string
		ingress := get[networkingv1.Ingress](t, all, "Ingress/"+name)
		for _, rule := range ingress.Spec.Rules {
			hosts = append(hosts, rule.Host)
			for _, path := range rule.HTTP.Paths {
				if to := path.Backend.Service; to.Name != name || to.Port.Name != want.named {
					t.Errorf("the ingress routes %s%s to %v", rule.Host, path.Path, to)
				}
			}
		}
		route := get[gatewayv1.HTTPRoute](t, all, "HTTPRoute/"+name)
		for _, rule := range route.Spec.Rules {
			for _, to := range rule.BackendRefs {
				if string(to.Name) != name || *to.Port != want.port {
					t.Errorf("the HTTPRoute routes to %v", to)
				}
			}
		}
		// Streams and long polls of payers outlast the 15 s that gateways made of Envoy give a request.
		if limit := route.Spec.Rules[0].Timeouts; (limit != nil) != (name == "merchant-operator-apiserver") || limit != nil && *limit.Request != "0s" {
			t.Errorf("the HTTPRoute %s has the timeouts %v", name, limit)
		}
		for _, hostname := range route.Spec.Hostnames {
			hostnames = append(hostnames, string(hostname))
		}
		if diff := cmp.Diff([][]string{want.hosts, want.hosts}, [][]string{hosts, hostnames}); diff != "" {
			t.Errorf("hosts of Ingress and HTTPRoute %s (-want +got):\n%s", name, diff)
		}
		for _, tls := range ingress.Spec.TLS {
			if diff := cmp.Diff(want.hosts, tls.Hosts); diff != "" || tls.SecretName != "console-tls" {
				t.Errorf("TLS of the Ingress %s: %v", name, tls)
			}
		}
	}
}

func newReach(policy networkingv1.NetworkPolicy) reach {
	var out reach
	for _, rule := range policy.Spec.Ingress {
		out.In = append(out.In, formatPeers(rule.From)+formatPorts(rule.Ports))
	}
	for _, rule := range policy.Spec.Egress {
		out.Out = append(out.Out, formatPeers(rule.To)+formatPorts(rule.Ports))
	}
	return out
}

func formatPorts(ports []networkingv1.NetworkPolicyPort) string {
	text := ":"
	for _, port := range ports {
		text += " " + port.Port.String()
	}
	if len(ports) == 0 {
		text += " any port"
	}
	return text
}

func formatPeers(from []networkingv1.NetworkPolicyPeer) string {
	text := ""
	for i, peer := range from {
		if i > 0 {
			text += ", "
		}
		switch {
		case peer.IPBlock != nil:
			text += peer.IPBlock.CIDR
			for _, except := range peer.IPBlock.Except {
				text += " but " + except
			}
		case peer.NamespaceSelector != nil && peer.PodSelector != nil:
			text += "rail=" + peer.PodSelector.MatchLabels["merchant-operator.io/rail"] + " of " + peer.NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"]
		case peer.NamespaceSelector != nil && peer.NamespaceSelector.MatchLabels["merchant-operator.io/gateway"] == "true":
			text += "namespaces of gateways"
		case peer.NamespaceSelector != nil:
			text += "namespace " + peer.NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"]
		case peer.PodSelector.MatchLabels["app.kubernetes.io/component"] != "":
			text += peer.PodSelector.MatchLabels["app.kubernetes.io/component"]
		default:
			text += peer.PodSelector.MatchLabels["app.kubernetes.io/name"]
		}
	}
	if len(from) == 0 {
		return "everybody"
	}
	return text
}

// selectsOnly fails unless the labels select the pods of these names and no others.
func selectsOnly(t *testing.T, what string, selector map[string]string, want ...string) {
	t.Helper()
	var got []string
	for name, template := range templates(t, withConsole) {
		if labels.SelectorFromSet(selector).Matches(labels.Set(template.Labels)) {
			got = append(got, name)
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pods that %s selects (-want +got):\n%s", what, diff)
	}
}

func TestServices_SelectTheirPods(t *testing.T) {
	all := objects(t, render(t, withConsole).stream())
	for name, want := range map[string][]string{
		"merchant-operator-apiserver":          {"merchant-operator-apiserver"},
		"merchant-operator-console":            {"merchant-operator-console"},
		"merchant-operator-apiserver-internal": {"merchant-operator-apiserver"},
		"merchant-operator-ops":                roles,
		"merchant-operator-redis":              {"merchant-operator-redis"},
	} {
		service := get[corev1.Service](t, all, "Service/"+name)
		selectsOnly(t, "the Service "+name, service.Spec.Selector, want...)
		for _, pod := range want {
			container := templates(t, withConsole)[pod].Spec.Containers[0]
			named := func(p corev1.ContainerPort) bool {
				return p.Name == service.Spec.Ports[0].TargetPort.String() && p.ContainerPort == service.Spec.Ports[0].Port
			}
			if len(service.Spec.Ports) != 1 || !slices.ContainsFunc(container.Ports, named) {
				t.Errorf("%s has no port that the Service %s names", pod, name)
			}
		}
	}
}
