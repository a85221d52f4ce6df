# Writes a file from the beginning, and ends after 1 GiB.
set mode quit firstdone
set $dir=/tmp
set $nthreads=1
set $iosize=1m
set $filesize=1g
set $count=1g
define fileset name=bigfileset,path=$dir,size=$filesize,entries=$nthreads,dirwidth=1024,prealloc=100
define process name=micro1,instances=1 {
  thread name=micro1,memsize=10m,instances=$nthreads {
    flowop write name=seqwrite1,filesetname=bigfileset,iosize=$iosize
    flowop finishonbytes name=finish1,value=$count
  }
}
run
