/* Uses everything that the header declares, and prints what test header.rs compares. */
#include <kagiri_qos.h>

#include <stddef.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  struct kagiri_qos_report report;
  memset(&report, 0, sizeof report);
  kagiri_qos *client = kagiri_qos_connect(100);
  if (client == NULL)
    return 1;
  printf("%d\n", kagiri_qos_state(client, "no name", 1, 1, &report) == KAGIRI_QOS_INVALID);
  printf("%d\n", kagiri_qos_state(NULL, NULL, 0, 0, NULL) == KAGIRI_QOS_INVALID);
  /* Where a policy is in force, the class is not its. */
  int code = kagiri_qos_state(client, "no-such-class-of-a-test", 1, 1, NULL);
  printf("%d\n", code == KAGIRI_QOS_NO_POLICY || code == KAGIRI_QOS_UNKNOWN_CLASS || code == KAGIRI_QOS_LATE);
  code = kagiri_qos_rate(client, &report);
  printf("%d\n", code <= KAGIRI_QOS_OK && code > KAGIRI_QOS_INTERNAL);
  printf("%d\n", kagiri_qos_withdraw(client, NULL) <= KAGIRI_QOS_OK);
  kagiri_qos_close(client);
  for (code = KAGIRI_QOS_OK; code >= KAGIRI_QOS_INVALID; code--)
    printf("%s\n", kagiri_qos_text(code));
  printf("%zu %zu %zu %zu %zu\n", sizeof report, offsetof(struct kagiri_qos_report, rate_bit_per_s),
         offsetof(struct kagiri_qos_report, in_time), offsetof(struct kagiri_qos_report, sockets),
         offsetof(struct kagiri_qos_report, class_name));
  return report.rate_bit_per_s == KAGIRI_QOS_UNLIMITED && report.sockets > report.paced + 1000000;
}
