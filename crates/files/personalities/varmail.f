# A mail server: mails are delivered and read, each in a file of its own, and written with fsync.
set $dir=/tmp
set $nfiles=1000
set $meandirwidth=1000000
set $meanfilesize=16k
set $filesize=randvar(type=gamma,mean=$meanfilesize,gamma=1500)
set $nthreads=16
set $iosize=1m
set $meanappendsize=16k
define fileset name=bigfileset,path=$dir,size=$filesize,entries=$nfiles,dirwidth=$meandirwidth,prealloc=80
define process name=varmail1,instances=1 {
  thread name=mailbox1,memsize=10m,instances=$nthreads {
    flowop deletefile name=delete1,filesetname=bigfileset
    flowop createfile name=deliver1,filesetname=bigfileset,fd=1
    flowop appendfilerand name=write1,fd=1,iosize=$meanappendsize
    flowop fsync name=fsync1,fd=1
    flowop closefile name=close1,fd=1
    flowop openfile name=open1,filesetname=bigfileset,fd=1
    flowop readwholefile name=read1,fd=1,iosize=$iosize
    flowop appendfilerand name=write2,fd=1,iosize=$meanappendsize
    flowop fsync name=fsync2,fd=1
    flowop closefile name=close2,fd=1
    flowop openfile name=open2,filesetname=bigfileset,fd=1
    flowop readwholefile name=read2,fd=1,iosize=$iosize
    flowop closefile name=close3,fd=1
  }
}
run 60
