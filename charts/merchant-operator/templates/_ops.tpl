{{/* Arguments of a monitored ops port. */}}

{{- define "merchant-operator.opsArgs" -}}
{{- if .Values.monitoring.enabled }}
- --secure-metrics
{{- if .Values.monitoring.certificateSecretName }}
- --ops-cert-dir=/etc/merchant-operator/ops-certificate
{{- end }}
{{- end }}
{{- end -}}

{{/* Volume mounts and volumes of a role: certificates only. Takes root, and redis: whether the role uses Redis. */}}
{{- define "merchant-operator.mounts" -}}
{{- $authority := and .redis .root.Values.redis.tls.caSecretName -}}
{{- $certificate := and .root.Values.monitoring.enabled .root.Values.monitoring.certificateSecretName -}}
{{- if or $authority $certificate }}
volumeMounts:
{{- if $authority }}
# The certificate authority of Redis.
- name: redis-ca
  mountPath: /etc/merchant-operator/redis-ca
  readOnly: true
{{- end }}
{{- if $certificate }}
- name: ops-certificate
  mountPath: /etc/merchant-operator/ops-certificate
  readOnly: true
{{- end }}
{{- end }}
{{- end -}}

{{- define "merchant-operator.volumes" -}}
{{- $authority := and .redis .root.Values.redis.tls.caSecretName -}}
{{- $certificate := and .root.Values.monitoring.enabled .root.Values.monitoring.certificateSecretName -}}
{{- if or $authority $certificate }}
volumes:
{{- if $authority }}
- name: redis-ca
  secret:
    secretName: {{ $authority }}
{{- end }}
{{- if $certificate }}
- name: ops-certificate
  secret:
    secretName: {{ $certificate }}
{{- end }}
{{- end }}
{{- end -}}
